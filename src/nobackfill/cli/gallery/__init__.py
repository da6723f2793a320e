"""The `gallery` commands and how they print results."""
