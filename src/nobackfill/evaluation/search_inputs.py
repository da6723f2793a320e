"""Queries and gallery of a search, in any form."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from jaxtyping import Float
from torch import Tensor

from nobackfill.data.pairs import as_ground_truth
from nobackfill.errors import DataError
from nobackfill.evaluation.relevance import IndexLists
from nobackfill.vectors import Vectors
from nobackfill.vectors.arrays import open_source, read_side
from nobackfill.vectors.column_names import ANY
from nobackfill.vectors.ids import Ids
from nobackfill.vectors.matrix import Data


class Search(NamedTuple):
    """Vectors of a search as tensors, and what is relevant by labels or by lists."""

    query: Float[Tensor, "query dim"]
    gallery: Float[Tensor, "gallery gallery_dim"]
    query_labels: Any
    gallery_labels: Any
    relevant: IndexLists | None


def read_search(
    query: Data,
    gallery: Data,
    query_labels: Any = None,
    gallery_labels: Any = None,
    *,
    relevant: IndexLists | None = None,
    pairs: Any = None,
) -> Search:
    """Reads the arguments of `retrieval`.

    Labels of the data are used if nothing else defines what is relevant. Arrays go to the device of
    the other side.
    """
    sources = {"query": open_source(query), "gallery": open_source(gallery)}
    sides = [read_side(name, source, ANY).vectors for name, source in sources.items()]
    kinds = {
        "labels": query_labels if gallery_labels is None else gallery_labels,
        "relevant": relevant,
        "pairs": pairs,
    }
    passed = [kind for kind, value in kinds.items() if value is not None]
    if len(passed) > 1:
        raise DataError(f"Pass one definition of the relevant items, not {' and '.join(passed)}.")
    if pairs is not None:
        relevant = rows_of_pairs(pairs, *(side.ids for side in sides))
    elif not passed:
        query_labels, gallery_labels = (side.labels for side in sides)
    # Arrays have no device of their own.
    first, second = (side.vectors for side in sides)
    has_device = [isinstance(source, Tensor | Vectors) for source in sources.values()]
    if has_device == [True, False]:
        second = second.to(first.device)
    elif has_device == [False, True]:
        first = first.to(second.device)
    return Search(first, second, query_labels, gallery_labels, relevant)


def rows_of_pairs(pairs: Any, query_ids: Ids, gallery_ids: Ids) -> Sequence[Sequence[int]]:
    """Returns the gallery rows of the relevant items of each query.

    Example:
        >>> import numpy as np
        >>> rows_of_pairs({"q": ["b", "a"]}, np.array(["p", "q"]), np.array(["a", "b"]))
        [[], [1, 0]]
    """
    related = as_ground_truth(pairs).relevant
    queries = {str(item): row for row, item in enumerate(query_ids.tolist())}
    rows = {str(item): row for row, item in enumerate(gallery_ids.tolist())}
    items = dict.fromkeys(item for items in related.values() for item in items)
    for what, ids, among in (("queries", related, queries), ("relevant items", items, rows)):
        if unknown := [item for item in ids if item not in among]:
            raise DataError(
                f"{len(unknown)} {what} of the pairs have no vector, the first are "
                f"{', '.join(map(repr, unknown[:3]))}. Embed them, or drop their pairs."
            )
    lists: list[list[int]] = [[] for _ in queries]
    for query, items_of_query in related.items():
        lists[queries[query]] = [rows[item] for item in items_of_query]
    return lists
