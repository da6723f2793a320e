"""Galleries in PostgreSQL with pgvector."""
