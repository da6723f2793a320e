"""A gallery in LanceDB."""
