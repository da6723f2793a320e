"""Our methods in the training loops of other libraries."""
