"""Compatible training in other libraries."""
