"""Fast lookup of ids in millions of ids."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nobackfill.errors import DataError

Ids = NDArray[Any]  # text or whole numbers


def is_in(ids: Ids, among: Ids) -> NDArray[np.bool_]:
    """Returns for each id whether it is in `among`.

    Files about the same items mostly have the same order. Then a comparison suffices, without the
    slow sorting of text.

    Example:
        >>> is_in(np.array(["b", "x"]), np.array(["a", "b"]))
        array([ True, False])
    """
    if ids.dtype.kind != among.dtype.kind or ids.dtype.kind != "U" or len(among) == 0:
        return np.isin(ids, among)
    if len(ids) == len(among) and np.array_equal(ids, among):
        return np.ones(len(ids), dtype=bool)
    present: NDArray[np.bool_] = among[_rows_if_present(ids, among)] == ids
    return present


def rows_of_ids(ids: Ids, among: Ids) -> NDArray[np.int64]:
    """Returns the row of each id in `among`, which must contain all of them.

    Example:
        >>> rows_of_ids(np.array([7, 5]), np.array([5, 6, 7]))
        array([2, 0])
    """
    if len(ids) == len(among) and np.array_equal(ids, among):
        return np.arange(len(ids))
    rows = _rows_if_present(ids, among)
    if (missing := among[rows] != ids).any():
        raise DataError(
            f"{int(missing.sum())} items have no vector, the first is "
            f"{ids[missing][0].item()!r}. Embed them too."
        )
    return rows


def _rows_if_present(ids: Ids, among: Ids) -> NDArray[np.int64]:
    """Returns the row of each id in `among`, or any other row if it is not there."""
    order = np.argsort(among, kind="stable")
    position = np.searchsorted(among, ids, sorter=order).clip(max=len(among) - 1)
    rows: NDArray[np.int64] = order[position].astype(np.int64)
    return rows
