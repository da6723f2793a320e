"""Pairs of queries and relevant items from Python objects."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nobackfill.data.ground_truth import COLUMNS, read_ground_truth, relevant_of
from nobackfill.data.listing import GroundTruth
from nobackfill.errors import DataError
from nobackfill.vectors.arrays import key_of, naming
from nobackfill.vectors.tables import as_table

# Usual names of both columns, in lower case.
QUERY = {"query", "query_id", "query-id", "qid", "anchor"}
RELEVANT = {
    "relevant",
    "relevant_id",
    "gallery",
    "gallery_id",
    "positive",
    "corpus_id",
    "corpus-id",
}


def as_ground_truth(pairs: Any) -> GroundTruth:
    """Returns the relevant items of each query.

    Args:
        pairs: A mapping from each query to its relevant items, a list of (query, relevant) tuples,
            a table with these two columns, or the path of such a file. Items are named by id, or
            by row number if vectors have no ids.

    Example:
        >>> as_ground_truth([("a", "b"), ("a", "c")]).relevant
        {'a': ['b', 'c']}
        >>> as_ground_truth({"query": ["a"], "relevant": ["b"]}).relevant
        {'a': ['b']}
    """
    if isinstance(pairs, GroundTruth):
        return pairs
    if isinstance(pairs, str | Path):
        return read_ground_truth(Path(pairs))
    with naming("pairs"):
        if isinstance(pairs, Mapping) and set(pairs) != set(COLUMNS):
            return GroundTruth({_text(query): _items(query, pairs[query]) for query in pairs})
        queries, items = (map(str, column.tolist()) for column in _columns(pairs))
        return GroundTruth(relevant_of(zip(queries, items, strict=True)))


def _columns(pairs: Any) -> tuple[NDArray[Any], NDArray[Any]]:
    """Returns the column of queries and that of relevant items."""
    if table := as_table(pairs):
        if len(table.names) != 2:
            raise DataError(
                f"a table of pairs has the two columns `query` and `relevant`, not "
                f"{', '.join(table.names)}. Drop the other columns."
            )
        query, relevant = table.names
        if query.lower() in RELEVANT or relevant.lower() in QUERY:
            query, relevant = relevant, query
        return key_of(table.column(query), query), key_of(table.column(relevant), relevant)
    rows = pairs.tolist() if hasattr(pairs, "tolist") else list(pairs)
    if wrong := [row for row in rows if isinstance(row, str) or not _is_pair(row)]:
        raise DataError(
            f"each pair has a query and a relevant item, but one is {wrong[0]!r:.80}. Pass "
            f'tuples such as ("a", "b"), or a mapping such as {{"a": ["b", "c"]}}.'
        )
    if not rows:
        raise DataError("there are none. Pass a relevant item for some queries.")
    queries, items = zip(*rows, strict=True)
    return key_of(list(queries), "query"), key_of(list(items), "relevant")


def _items(query: Any, items: Any) -> list[str]:
    """Returns the relevant items of a query as text."""
    if isinstance(items, str | bytes) or not hasattr(items, "__iter__"):
        raise DataError(
            f"The relevant items of a query must be a list, but those of {query!r} are {items!r}. "
            f"Write a list with one entry."
        )
    return [_text(item) for item in items]


def _text(item: Any) -> str:
    """Returns an id as text; numbers of NumPy and torch are written like those of Python."""
    return str(item.item() if isinstance(item, np.generic) or hasattr(item, "item") else item)


def _is_pair(row: Any) -> bool:
    """Whether a row has two entries."""
    return hasattr(row, "__len__") and len(row) == 2
