"""The `evaluate` command and how it prints results."""
