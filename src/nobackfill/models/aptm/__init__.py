"""APTM, a model of images and texts with a cross-encoder (Yang et al., ACM Multimedia 2023)."""
