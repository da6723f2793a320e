"""Near-duplicates among items of different groups, and classes that are copies with noise.

Copies under other labels make few classes look like many. An item and its copy are closer to each
other, by every model, than the item is to any other item of its class.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from nobackfill.evaluation.bootstrap import FEWEST_GROUPS
from nobackfill.ops.components import Edges, components

COPY = 0.995  # smallest cosine of near-duplicates, in the old space and in the new one
SHARE = 1 / 3  # of the distance to the nearest item of the own class: copies are closer
BLOCK_BYTES = 64 * 2**20  # of cosines in a block
PROJECTED = 32  # directions in which pairs are compared first, or twice as many, and so on
SAMPLE = 512  # items of which all pairs are compared to choose that number
FEW = 1e-4  # share of pairs that the first comparison may leave
ROUNDING = 1e-5  # error of a float32 cosine
OWN_ROWS = 512  # items that are compared with their own class at a time
PAIRS = 2**18  # pairs that are compared at a time

Groups = Int[np.ndarray, " _"]
Sides = Sequence[Float[Tensor, "_ _"]]  # vectors of the same items by each model


def near_duplicates(sides: Sides, groups: Groups) -> Edges:
    """Joins the groups of near-duplicates, and groups that are copies with noise.

    Two groups are joined if an item of one is a near-duplicate of an item of the other by every
    model, or if most items of one are copies of items of the other. If fewer than 8 groups are
    left, no interval is computed, and the rest is not compared.

    Args:
        sides: Vectors of the items by each model.
        groups: Group of each item.

    Returns:
        Each group, and the group that it is joined with.
    """
    names, number = np.unique(groups, return_inverse=True)
    own = roots = np.arange(len(names))
    if len(names) < FEWEST_GROUPS:
        return names, names
    items = Compared.sorted(sides, number)
    pairs = [np.zeros((2, 0), dtype=np.int64)]
    for left, right, is_same in close_pairs(items, items):
        groups_left, groups_right = items.groups[left], items.groups[right]
        copies = groups_left[is_same], groups_right[is_same]
        roots = components(len(names), [(own, roots), copies])
        if len(np.unique(roots)) < FEWEST_GROUPS:
            break
        is_apart = roots[groups_left] != roots[groups_right]
        pairs += [np.stack([left[is_apart], right[is_apart]])]
    left, right = np.concatenate(pairs, axis=1)
    both_ways = np.concatenate([left, right]), np.concatenate([right, left])
    copied = copied_groups(both_ways, items.groups, items.groups)
    return names, names[components(len(names), [(own, roots), copied])]


@dataclass(frozen=True, eq=False)
class Compared:
    """Items that are compared with others, sorted by group.

    Attributes:
        units: Vectors at unit length by each model.
        reaches: For each model, how far a copy of an item may be, as 1 - cosine.
        groups: Group of each item.
        order: Position of each item before it was sorted.
    """

    units: Sides
    reaches: Sequence[Float[Tensor, " item"]]
    groups: Groups
    order: Groups

    @classmethod
    def sorted(cls, sides: Sides, groups: Groups) -> "Compared":
        """Sorts items by group, and measures how far a copy of each may be."""
        order = np.argsort(groups, kind="stable")
        rows = torch.from_numpy(order)
        units = [F.normalize(side[rows.to(side.device)].float(), dim=1) for side in sides]
        number = torch.from_numpy(groups[order]).to(units[0].device)
        reaches = [(SHARE * own_distance(unit, number)).clamp(min=1 - COPY) for unit in units]
        return cls(units, reaches, groups[order], order)


def copied_groups(pairs: Edges, left_groups: Groups, right_groups: Groups) -> Edges:
    """Returns groups on the left with copies of most items in one on the right, and that group.

    Args:
        pairs: Copies: an item on the left and an item on the right.
        left_groups: Group of each item on the left.
        right_groups: Group of each item on the right.

    Example:
        >>> copied_groups((np.array([0, 1, 2]), np.array([0, 1, 0])), np.array([5, 5, 6, 6]),
        ...               np.array([8, 8]))
        (array([5]), array([8]))
    """
    # count the items of a group that have a copy in another, each item once
    item, other = np.unique(np.stack([pairs[0], right_groups[pairs[1]]]), axis=1)
    between = np.stack([left_groups[item], other])
    (group, other), copies = np.unique(between, axis=1, return_counts=True)
    known, sizes = np.unique(left_groups, return_counts=True)
    is_most = 2 * copies > sizes[np.searchsorted(known, group)]
    return group[is_most], other[is_most]


def own_distance(
    unit: Float[Tensor, "item dim"], groups: Int[Tensor, " item"]
) -> Float[Tensor, " item"]:
    r"""1 - cosine of each item and the nearest other item of its group; 0 if there is none.

    Args:
        unit: Vectors at unit length, sorted by group.
        groups: Group of each item.
    """
    nearest = torch.ones(len(unit), device=unit.device)
    for rows in torch.arange(len(unit), device=unit.device).split(OWN_ROWS):
        first = int(torch.searchsorted(groups, groups[rows[0]]))
        last = int(torch.searchsorted(groups, groups[rows[-1]], right=True))
        cosines = unit[rows] @ unit[first:last].T
        is_own = groups[rows, None] == groups[None, first:last]
        is_own[torch.arange(len(rows)), rows - first] = False
        nearest[rows] = cosines.where(is_own, -2).amax(dim=1)
    return torch.where(nearest < -1, 0, 1 - nearest)


def close_pairs(
    queries: Compared, others: Compared
) -> Iterator[tuple[Groups, Groups, Bool[np.ndarray, " _"]]]:
    r"""Pairs of items of different groups that are near-duplicates or copies by every model.

    .. math::
        1 - \cos(q^m_i, q^m_j) \le \min(r^m_i, r^m_j), \qquad
        r^m_i = \max\bigl(1 - `COPY`,\; `SHARE` \min_{k \in \mathrm{group}(i)}
        (1 - \cos(q^m_i, q^m_k))\bigr)

    It compares all items of both sides, in blocks: first a projection of them, then whole vectors
    of the pairs that the projection leaves. Items are compared with each other once if both sides
    are the same.

    Returns:
        Positions of a query and of another item of each pair, and whether they are near-duplicates:
        a cosine of at least `COPY` by every model.
    """
    left_sides, right_sides = projected(queries, others)
    device, is_same_side = left_sides.device, queries is others
    group = torch.from_numpy(queries.groups).to(device)
    rows = max(1, BLOCK_BYTES // (4 * max(1, len(right_sides))))
    for first in range(0, len(left_sides), rows):
        last = min(first + rows, len(left_sides))
        start = first if is_same_side else 0
        left_over = left_sides[first:last] @ right_sides[start:].T
        if is_same_side:  # items of a group are adjacent, so those of the block end soon
            end = int(torch.searchsorted(group, group[last - 1], right=True))
            is_own = group[first:last, None] == group[None, first:end]
            left_over[:, : end - first].masked_fill_(is_own, -1)
        near = (left_over.amax(dim=1) >= 0).nonzero().squeeze(1)  # rows with a candidate
        left, right = (left_over[near] >= 0).nonzero().unbind(dim=1)
        for part in torch.stack([near[left] + first, right + start]).split(PAIRS, dim=1):
            yield compare(queries, others, part)


def compare(
    queries: Compared, others: Compared, pairs: Int[Tensor, "2 pair"]
) -> tuple[Groups, Groups, Bool[np.ndarray, " _"]]:
    """Returns the pairs among the given ones that are close; see `close_pairs`."""
    left, right = pairs
    is_same = torch.ones(len(left), dtype=torch.bool, device=left.device)
    is_close = is_same.clone()
    for unit, reach, other, other_reach in zip(
        queries.units, queries.reaches, others.units, others.reaches, strict=True
    ):
        cosines = (unit[left] * other[right]).sum(dim=1)
        is_same &= cosines >= COPY
        is_close &= 1 - cosines <= torch.minimum(reach[left], other_reach[right])
    kept = is_close | is_same
    close, is_copy = pairs[:, kept].cpu().numpy(), is_same[kept].cpu().numpy()
    return close[0], close[1], is_copy


def projected(
    queries: Compared, others: Compared
) -> tuple[Float[Tensor, "query _"], Float[Tensor, "item _"]]:
    """Returns the factors of `halves` in as few directions as leave few pairs of a sample.

    Principal directions of the vectors leave fewest.
    """
    left, right = queries.units[0], others.units[0]
    dim = left.shape[1]
    rows, columns = evenly(len(left), SAMPLE), evenly(len(right), 4 * SAMPLE)
    is_other = torch.from_numpy(queries.groups[rows, None] != others.groups[None, columns])
    sample = right[columns] - right[columns].mean(dim=0)
    noise = torch.randn(dim, dim, generator=torch.Generator().manual_seed(0)).to(left.device)
    number = PROJECTED
    while True:
        number = min(number, dim)
        basis = torch.linalg.qr(
            sample.T @ (sample @ noise[:, :number]) + ROUNDING * noise[:, :number]
        ).Q
        factors = halves(left @ basis, right @ basis, queries.reaches[0])
        is_left = factors[0][rows] @ factors[1][columns].T >= 0
        if number == dim or (is_left.cpu() & is_other).float().mean() < FEW:
            return factors
        number *= 2


def evenly(length: int, number: int) -> Groups:
    """At most so many positions, evenly spaced.

    Example:
        >>> evenly(7, 3).tolist(), evenly(2, 3).tolist()
        ([0, 2, 4], [0, 1])
    """
    return np.arange(0, length, max(1, length // number))[:number]


def halves(
    left: Float[Tensor, "query dim"],
    right: Float[Tensor, "item dim"],
    reach: Float[Tensor, " query"],
) -> tuple[Float[Tensor, "query _"], Float[Tensor, "item _"]]:
    r"""Returns two factors whose product is at least 0 for each close pair.

    Vectors :math:`a_i`, :math:`b_j` in a subspace are shorter than those that they are projections
    of, so close pairs have

    .. math::
        \lVert a_i - b_j \rVert^2 \le 2 r_i,

    and half of what is left over is the inner product of
    :math:`(a_i,\; r_i - \tfrac12 \lVert a_i \rVert^2,\; 1)` and
    :math:`(b_j,\; 1,\; -\tfrac12 \lVert b_j \rVert^2)`.
    """
    left_rest, right_rest = (-rows.square().sum(dim=1, keepdim=True) / 2 for rows in (left, right))
    left_rest = left_rest + reach[:, None] + ROUNDING
    return (
        torch.cat([left, left_rest, torch.ones_like(left_rest)], dim=1),
        torch.cat([right, torch.ones_like(right_rest), right_rest], dim=1),
    )


def have_copies(
    queries: Sides, query_groups: Groups, others: Sides, other_groups: Groups
) -> Bool[np.ndarray, " query"]:
    """Marks the queries that are near-duplicates of some other item by every model.

    If most queries of a group are copies with noise of items of one other group, all are marked.
    Vectors of both sides are those of the same models, in the same order.
    """
    left, right = Compared.sorted(queries, query_groups), Compared.sorted(others, other_groups)
    marks = np.zeros(len(query_groups), dtype=bool)
    pairs = [np.zeros((2, 0), dtype=np.int64)]
    for query, other, is_same in close_pairs(left, right):
        marks[left.order[query[is_same]]] = True
        pairs.append(np.stack([query, other]))
    query, other = np.concatenate(pairs, axis=1)
    copied, _ = copied_groups((query, other), left.groups, right.groups)
    return marks | np.isin(query_groups, copied)
