"""Readers of public datasets, one file each."""
