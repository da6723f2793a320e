"""Tensor operations: inner products, exact nearest neighbours, ranks, k-means."""
