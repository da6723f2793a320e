"""One file per kind of page."""
