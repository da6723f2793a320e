"""A gallery in Milvus Lite."""
