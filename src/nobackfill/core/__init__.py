"""Configuration, atomic writes, locks, seeds, processes and devices: nothing about embeddings."""
