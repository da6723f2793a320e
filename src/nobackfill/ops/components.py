"""Connected components of a graph of pairs."""

import numpy as np
from jaxtyping import Int

Rows = Int[np.ndarray, " _"]
Edges = tuple[Rows, Rows]  # first and second of each pair


def components(number: int, edges: list[Edges]) -> Rows:
    """Connected components of a graph: the smallest item of the component of each item.

    Example:
        >>> components(4, [(np.array([3, 0]), np.array([1, 2]))]).tolist()
        [0, 1, 0, 1]
    """
    root = np.arange(number)
    if not edges:
        return root
    left, right = (np.concatenate([edge[side] for edge in edges]) for side in (0, 1))
    while True:
        # the lower root of each edge becomes the root of the higher one; then shorten all paths
        pair = np.stack([root[left], root[right]])
        low, high = pair.min(axis=0), pair.max(axis=0)
        if (low == high).all():
            return root
        np.minimum.at(root, high, low)
        while not np.array_equal(root, shorter := root[root]):
            root = shorter


def chain(names: Rows) -> Edges:
    """Joins each row with the next one of the same name.

    Example:
        >>> [rows.tolist() for rows in chain(np.array([7, 3, 7, 7]))]
        [[0, 2], [2, 3]]
    """
    order = np.argsort(names, kind="stable")
    same = names[order[:-1]] == names[order[1:]]
    return order[:-1][same], order[1:][same]
