"""Galleries in Qdrant."""
