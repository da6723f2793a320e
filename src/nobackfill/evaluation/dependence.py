"""Groups of queries whose results depend on each other.

Two queries depend on each other if they are of one class, share a relevant item, are
near-duplicates, or come from one session. All queries of two classes depend on each other if most
items of one are copies, with noise, of items of the other. Intervals resample whole groups, and a
head that was fitted on one item of a group has seen the whole group.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from nobackfill.core.suggest import suggest
from nobackfill.errors import ConfigError
from nobackfill.evaluation.file_columns import file_with
from nobackfill.evaluation.near_duplicates import Groups, near_duplicates
from nobackfill.evaluation.search_plan import SearchPlan
from nobackfill.ops.components import Edges, components
from nobackfill.vectors import Vectors
from nobackfill.vectors.ids import rows_of_ids


def dependent_items(
    plan: SearchPlan,
    query_vectors: Callable[[], tuple[Float[Tensor, "query _"], ...]],
    sessions: NDArray[np.generic] | None = None,
) -> tuple[Groups, Groups, int]:
    """Numbers the group of each query and of each gallery item.

    Args:
        plan: Queries, gallery and relevant items of the search.
        query_vectors: Vectors of the queries by each model; called once.
        sessions: Session of each query and then of each gallery item, if known.

    Returns:
        The group of each query, the group of each gallery item, and the number of queries that
        are in one group with others only because they are near-duplicates of them.
    """
    queries, items = len(plan.query_ids), len(plan.query_ids) + len(plan.gallery_ids)
    edges = list(relevance_edges(plan))
    if sessions is not None:
        first_of = np.unique(sessions, return_index=True, return_inverse=True)
        edges.append((np.arange(items), first_of[1][first_of[2]]))
    groups = components(items, edges)
    copies = near_duplicates(query_vectors(), groups[:queries])
    joined = components(items, [(np.arange(items), groups), copies])
    moved = count_of_joined(groups[:queries], joined[:queries])
    return joined[:queries], joined[queries:], moved


def relevance_edges(plan: SearchPlan) -> Iterator[Edges]:
    """Joins the items of a class, or each query with its relevant items; an item is itself."""
    queries, gallery = len(plan.query_ids), len(plan.gallery_ids)
    own = np.unique(np.concatenate([plan.query_ids, plan.gallery_ids]), return_inverse=True)[1]
    yield np.arange(queries + gallery), first_with(own)
    if plan.relevant is None:
        assert plan.query_labels is not None
        assert plan.gallery_labels is not None
        labels = torch.cat([plan.query_labels, plan.gallery_labels]).numpy()
        yield np.arange(queries + gallery), first_with(labels)
        return
    counts = [len(rows) for rows in plan.relevant]
    relevant = np.array([row for rows in plan.relevant for row in rows], dtype=np.int64)
    yield np.repeat(np.arange(queries), counts), queries + relevant


def first_with(values: NDArray[np.generic]) -> Groups:
    """Returns the position of the first item with the same value, for each item.

    Example:
        >>> first_with(np.array([7, 5, 7])).tolist()
        [0, 1, 0]
    """
    _, first, number = np.unique(values, return_index=True, return_inverse=True)
    positions: Groups = first[number]
    return positions


def sessions_of(
    column: str, plan: SearchPlan, files: Sequence[Vectors]
) -> tuple[NDArray[np.generic], SearchPlan]:
    """Returns the sessions of queries and then of gallery items, and the search without leaks.

    In that search no item finds items of its own session.
    """
    file = file_with(column, files)
    if file is None:
        names = {name for other in files for name in other.columns}
        raise ConfigError(f"no file has a column `{column}`. {suggest(column, names)}")
    values = file.columns[column]
    query, gallery = (
        values[rows_of_ids(ids, file.ids)] for ids in (plan.query_ids, plan.gallery_ids)
    )
    order = np.argsort(gallery, kind="stable")
    bounds = (np.searchsorted(gallery[order], query, side=side) for side in ("left", "right"))
    own = [order[first:last].tolist() for first, last in zip(*bounds, strict=True)]
    ignored = plan.ignored or [[]] * len(own)
    hidden = [sorted({*rows, *listed}) for rows, listed in zip(own, ignored, strict=True)]
    return np.concatenate([query, gallery]), replace(plan, ignored=hidden)


def copies_note(copies: int, queries: int) -> list[str]:
    """Returns a note on queries that are near-duplicates of queries of other classes.

    Example:
        >>> copies_note(20, 400)
        ['20 of 400 queries are near-duplicates of queries of other classes: they count as one ...']
        >>> copies_note(0, 400)
        []
    """
    if not copies:
        return []
    return [
        f"{copies:,} of {queries:,} queries are near-duplicates of queries of other classes: they "
        f"count as one group"
    ]


def count_of_joined(before: Groups, after: Groups) -> int:
    """Returns the number of queries whose group became larger.

    Example:
        >>> count_of_joined(np.array([0, 1, 1, 3]), np.array([0, 0, 0, 3]))
        3
    """
    sizes = (
        np.unique(groups, return_inverse=True, return_counts=True) for groups in (before, after)
    )
    own, joined = (counts[number] for _, number, counts in sizes)
    return int((joined > own).sum())
