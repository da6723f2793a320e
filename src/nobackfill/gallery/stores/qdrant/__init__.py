"""A gallery in Qdrant."""
