"""Tensor operations: products, exact nearest neighbours, ranks, k-means."""
