"""Galleries in Milvus and Milvus Lite."""
