"""A gallery in PostgreSQL with pgvector."""
