"""Groups of queries whose results depend on each other.

Two queries depend on each other if they are of one class, share a relevant item, are
near-duplicates, or come from one session. Intervals resample whole groups, and a head that was
fitted on one item of a group has seen the whole group.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor

from nobackfill.core.config import suggest
from nobackfill.errors import ConfigError
from nobackfill.evaluation.file_columns import file_with
from nobackfill.evaluation.search_plan import SearchPlan
from nobackfill.vectors import Vectors
from nobackfill.vectors.ids import rows_of_ids

COPY = 0.995  # smallest cosine of near-duplicates, in the old space and in the new one
BLOCK_BYTES = 64 * 2**20  # of cosines in a block
PROJECTED = 32  # dimensions in which pairs are compared first
ROUNDING = 1e-5  # error of a float32 cosine

Groups = Int[np.ndarray, " _"]
Edges = tuple[Groups, Groups]  # first and second item of each pair of dependent items


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
    copies = list(near_duplicates(query_vectors(), groups[:queries]))
    joined = components(items, [(np.arange(items), groups), *copies])
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
    """Position of the first item with the same value.

    Example:
        >>> first_with(np.array([7, 5, 7])).tolist()
        [0, 1, 0]
    """
    _, first, number = np.unique(values, return_index=True, return_inverse=True)
    positions: Groups = first[number]
    return positions


def components(number: int, edges: list[Edges]) -> Groups:
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
        # hang the higher root of each edge below the lower one, then shorten all paths
        pair = np.stack([root[left], root[right]])
        low, high = pair.min(axis=0), pair.max(axis=0)
        if (low == high).all():
            return root
        np.minimum.at(root, high, low)
        while not np.array_equal(root, shorter := root[root]):
            root = shorter


def near_duplicates(sides: tuple[Float[Tensor, "query _"], ...], groups: Groups) -> Iterator[Edges]:
    r"""Pairs of queries of different groups that are near-duplicates by every model.

    .. math::
        \min_m \cos(q^m_i, q^m_j) \ge `COPY`

    It compares all queries with each other, in blocks: first a projection of them, then whole
    vectors of the queries that the projection leaves.
    """
    number = torch.from_numpy(groups).to(sides[0].device, torch.int32)
    units = [F.normalize(side.float(), dim=1) for side in sides]
    left_sides, right_sides = projected(units[0])
    rows = max(1, BLOCK_BYTES // (4 * len(groups)))
    for first in range(0, len(groups), rows):
        # later queries only: each pair once
        later = slice(first, None)
        left_over = left_sides[first : first + rows] @ right_sides[later].T
        left_over.fill_diagonal_(-1)
        block = first + (left_over.amax(dim=1) >= 0).nonzero().squeeze(1)
        is_copy = number[block, None] != number[None, later]
        for unit in units:
            is_copy &= unit[block] @ unit[later].T >= COPY
        left, right = is_copy.nonzero().cpu().numpy().T
        if len(left):
            yield block.cpu().numpy()[left], right + first


def projected(
    unit: Float[Tensor, "query dim"],
) -> tuple[Float[Tensor, "query _"], Float[Tensor, "query _"]]:
    r"""Two factors whose product is at least 0 for each pair of near-duplicates.

    A projection :math:`P` with orthonormal columns lengthens no vector, so near-duplicates have

    .. math::
        \lVert u_i P - u_j P \rVert^2 \le 2 - 2\,`COPY`,

    and half of what is left over is the inner product of
    :math:`(u_i P,\; -\tfrac12 \lVert u_i P \rVert^2,\; 1)` and
    :math:`(u_j P,\; 1,\; 1 - `COPY` - \tfrac12 \lVert u_j P \rVert^2)`.
    """
    dim = unit.shape[1]
    noise = torch.randn(dim, min(dim, PROJECTED), generator=torch.Generator().manual_seed(0))
    rows = unit @ torch.linalg.qr(noise).Q.to(unit.device)
    half = rows.square().sum(dim=1, keepdim=True) / 2
    one = torch.ones_like(half)
    slack = 1 - COPY + ROUNDING
    return torch.cat([rows, -half, one], dim=1), torch.cat([rows, one, slack - half], dim=1)


def have_copies(
    queries: Sequence[Float[Tensor, "query _"]], others: Sequence[Float[Tensor, "item _"]]
) -> Bool[np.ndarray, " query"]:
    """Marks the queries that are near-duplicates of some other item by every model.

    Vectors of both sides are those of the same models, in the same order.
    """
    marks = np.zeros(len(queries[0]), dtype=bool)
    units = [[F.normalize(side.float(), dim=1) for side in sides] for sides in (queries, others)]
    rows = max(1, BLOCK_BYTES // (4 * max(1, len(others[0]))))
    for first in range(0, len(marks), rows):
        block = slice(first, first + rows)
        cosines = [query[block] @ other.T for query, other in zip(*units, strict=True)]
        marks[block] = (torch.stack(cosines).amin(dim=0) >= COPY).any(dim=1).cpu().numpy()
    return marks


def sessions_of(
    column: str, plan: SearchPlan, files: Sequence[Vectors]
) -> tuple[NDArray[np.generic], SearchPlan]:
    """The session of each query and then of each gallery item, and the search without leaks.

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
    """A note on queries that are near-duplicates of queries of other classes.

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
    """Number of queries whose group became larger.

    Example:
        >>> count_of_joined(np.array([0, 1, 1, 3]), np.array([0, 0, 0, 3]))
        3
    """
    sizes = (
        np.unique(groups, return_inverse=True, return_counts=True) for groups in (before, after)
    )
    own, joined = (counts[number] for _, number, counts in sizes)
    return int((joined > own).sum())
