"""Which queries search which gallery, metrics, intervals, and the verdict."""
