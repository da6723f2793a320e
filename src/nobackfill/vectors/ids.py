"""Ids among ids, of which there may be millions: which are there, and in which row."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nobackfill.errors import DataError

Ids = NDArray[Any]  # text or whole numbers


def is_in(ids: Ids, among: Ids) -> NDArray[np.bool_]:
    """Which of the ids are among others.

    Files about the same items mostly name them in the same order: then a look is enough, and no
    text is sorted that is sorted already.

    Example:
        >>> is_in(np.array(["b", "x"]), np.array(["a", "b"]))
        array([ True, False])
    """
    if ids.dtype.kind != among.dtype.kind or ids.dtype.kind != "U" or len(among) == 0:
        return np.isin(ids, among)
    if len(ids) == len(among) and np.array_equal(ids, among):
        return np.ones(len(ids), dtype=bool)
    found: NDArray[np.bool_] = among[nearest_rows(ids, among)] == ids
    return found


def rows_of_ids(ids: Ids, among: Ids) -> NDArray[np.int64]:
    """The row of each id among others, where all must be.

    Example:
        >>> rows_of_ids(np.array([7, 5]), np.array([5, 6, 7]))
        array([2, 0])
    """
    if len(ids) == len(among) and np.array_equal(ids, among):
        return np.arange(len(ids))
    rows = nearest_rows(ids, among)
    if (lost := among[rows] != ids).any():
        raise DataError(
            f"wanted vectors of all items, but {int(lost.sum())} have none, the first being "
            f"{ids[lost][0].item()!r}. Embed them too."
        )
    return rows


def nearest_rows(ids: Ids, among: Ids) -> NDArray[np.int64]:
    """The row of each id where it is there, and of another where it is not."""
    order = np.argsort(among, kind="stable")
    place = np.searchsorted(among, ids, sorter=order).clip(max=len(among) - 1)
    rows: NDArray[np.int64] = order[place].astype(np.int64)
    return rows
