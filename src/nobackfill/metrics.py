"""Retrieval metrics: the ranks of the relevant items in, one value per query out.

Nothing is sorted that need not be. A query's relevant items are few; the rank of each is one plus
the number of gallery items before it, and that can be counted while the scores stream by.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from nobackfill.errors import ConfigError, DataError
from nobackfill.search import comparable, for_each_row, rows_per_block, score_blocks

AREAS = ("step", "trapezoid")
Integers = Tensor | np.ndarray | Sequence[Any]  # what else it holds is for `whole_numbers` to say
IndexLists = Tensor | np.ndarray | Sequence[Integers]
Sides = tuple[Int[np.ndarray, " query"], Int[np.ndarray, " gallery"]]


@dataclass(frozen=True, eq=False)
class Retrieval:
    """How well each query found what is relevant to it. All tensors are on the CPU.

    Attributes:
        average_precision: Of each query, float64; NaN where nothing is relevant.
        first_hit: Rank of the best relevant item, from 1; 0 where there is none (up to `at`).
        num_relevant: How many relevant items each query has, without the ignored ones.
        ranks: Ranks of all relevant items, from 1, never cut: first those of query 0, ascending,
            then those of query 1, and so on. `ranks[offsets[i] : offsets[i + 1]]` are query `i`'s.
    """

    average_precision: Float[Tensor, " query"]
    first_hit: Int[Tensor, " query"]
    num_relevant: Int[Tensor, " query"]
    ranks: Int[Tensor, " hits"]

    @property
    def offsets(self) -> Int[Tensor, " query_and_one"]:
        """Where the ranks of each query start in `ranks`; the last entry is their number."""
        return offsets(self.num_relevant)

    @property
    def mean_average_precision(self) -> float:
        """The mean over the queries that have something relevant; NaN if none has."""
        return self.average_precision.nanmean().item()

    def recall(self, k: int) -> float:
        """Share of the queries with any hit in the top `k`, of those that have something relevant.

        Taken from the whole ranking, also where `average_precision` was cut by `at`.
        """
        if k < 1:
            raise ConfigError(f"recall looks at the top k, k >= 1, but k is {k}. Pass k=1 or more.")
        best = self.ranks[self.offsets[:-1][self.num_relevant > 0]]
        return (best <= k).double().mean().item()


def retrieval(
    query: Float[Tensor, "query dim"],
    gallery: Float[Tensor, "gallery gallery_dim"],
    query_labels: Integers | None = None,
    gallery_labels: Integers | None = None,
    *,
    relevant: IndexLists | None = None,
    ignored: IndexLists | None = None,
    query_camera: Integers | None = None,
    gallery_camera: Integers | None = None,
    exclude_self: bool = False,
    at: int | None = None,
    area: str = "step",
) -> Retrieval:
    """Ranks the gallery by cosine similarity for each query, and says how well that went.

    Relevant is what has the query's label, or what `relevant` lists. Ignored items are taken out
    of the ranking before ranks are counted, relevant or not. Items of equal score are ranked in
    the order of the gallery. Nothing of the size query x gallery is ever held.

    Args:
        query: One row per query; any length but zero.
        gallery: What is ranked, on the same device.
        query_labels: Integers, one per query.
        gallery_labels: Integers, one per gallery item.
        relevant: In place of labels: for each query the gallery rows that are relevant to it.
        ignored: For each query the gallery rows that neither help nor harm (junk).
        query_camera: With `gallery_camera`: items of the same label *and* camera as the query are
            ignored, as in person re-identification.
        gallery_camera: Integers, one per gallery item.
        exclude_self: Query `i` is gallery item `i`, which is ignored (leave-one-out).
        at: Cut the ranking there, see `average_precision`.
        area: "step", or "trapezoid" as in ROxford and RParis.

    Raises:
        DataError: If vectors, labels, cameras or lists cannot be used as they are.
        ConfigError: If `at` or `area` make no sense.

    Example:
        >>> query = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
        >>> gallery = torch.tensor([[1.0, 0.1], [1.0, 0.3], [0.1, 1.0]])
        >>> result = retrieval(query, gallery, [7, 7], [7, 8, 7])
        >>> result.average_precision, result.first_hit
        (tensor([0.8333, 0.8333], dtype=torch.float64), tensor([1, 1]))
        >>> round(result.mean_average_precision, 4), result.recall(1)
        (0.8333, 1.0)
    """
    check_settings(at, area)
    query, gallery = comparable(query, gallery, exclude_self=exclude_self)
    sizes = len(query), len(gallery)
    query, gallery = unit(query, "query"), unit(gallery, "gallery")
    labels = both_sides(query_labels, gallery_labels, sizes, "labels")
    cameras = both_sides(query_camera, gallery_camera, sizes, "camera")
    relevance = what_is_relevant(labels, relevant, sizes)
    hidden = []
    if ignored is not None:
        hidden.append(lists_by_index(ignored, sizes, "ignored"))
    if cameras is not None:
        hidden.append(same_label_and_camera(labels, cameras))
    if exclude_self:
        hidden.append(Lists.one_each(np.arange(len(query))))

    parts = []
    block = rows_per_block(len(gallery) * gallery.element_size() + 48 * relevance.longest)
    for first, score in score_blocks(query, gallery, block):
        last = first + len(score)
        for lists in hidden:
            row, item = lists.pairs(first, last)
            score[row.to(score.device), item.to(score.device)] = -torch.inf
        ranks, num_relevant = sorted_ranks(score, *relevance.pairs(first, last))
        precision = average_precision(ranks, num_relevant, at=at, area=area)
        parts.append((precision, first_hit(ranks, num_relevant, at=at), num_relevant, ranks))
    return Retrieval(*(torch.cat(part) for part in zip(*parts, strict=True)))


# ---------------------------------------------------------------- formulas, from ranks to values


def average_precision(
    ranks: Int[Tensor, " hits"],
    num_relevant: Int[Tensor, " query"],
    *,
    at: int | None = None,
    area: str = "step",
) -> Float[Tensor, " query"]:
    r"""Average precision of each query, from the ranks of all that is relevant to it.

    .. math::
        \mathrm{AP@}k = \frac{1}{\min(R, k)} \sum_{j : r_j \le k} p_j, \qquad
        p_j = \frac{j}{r_j} \;\text{(step)}, \quad
        p_j = \frac{1}{2} \Bigl( \frac{j - 1}{r_j - 1} + \frac{j}{r_j} \Bigr) \;\text{(trapezoid)},

    with :math:`r_1 < r_2 < \dots < r_R` the ranks, from 1, and :math:`k` infinite without `at`.
    The first fraction of the trapezoid is 1 where :math:`r_j = 1`.

    Args:
        ranks: Those of query 0, ascending, then those of query 1, and so on.
        num_relevant: How many ranks each query has, :math:`R`.
        at: :math:`k`.
        area: What is summed under the precision-recall curve.

    Returns:
        One float64 in [0, 1] per query; NaN where nothing is relevant.

    Example:
        >>> average_precision(torch.tensor([1, 2, 5]), torch.tensor([3, 0]))
        tensor([0.8667,    nan], dtype=torch.float64)
        >>> average_precision(torch.tensor([1, 2, 5]), torch.tensor([3]), area="trapezoid")
        tensor([0.8500], dtype=torch.float64)
    """
    owner = torch.repeat_interleave(num_relevant)
    found = torch.arange(1, len(ranks) + 1) - offsets(num_relevant)[owner]  # j
    precision = found.double() / ranks
    if area == "trapezoid":
        before = torch.where(ranks == 1, 1.0, (found - 1).double() / (ranks - 1).clamp(min=1))
        precision = (before + precision) / 2
    best = num_relevant
    if at is not None:
        precision = precision * (ranks <= at)
        best = num_relevant.clamp(max=at)  # the most hits such a short ranking could show
    total = torch.zeros(len(num_relevant), dtype=torch.float64).index_add_(0, owner, precision)
    return total / best


def first_hit(
    ranks: Int[Tensor, " hits"], num_relevant: Int[Tensor, " query"], *, at: int | None = None
) -> Int[Tensor, " query"]:
    """Rank of the best relevant item of each query; 0 where there is none, or none up to `at`.

    Example:
        >>> first_hit(torch.tensor([2, 3, 9]), torch.tensor([2, 0, 1]), at=5)
        tensor([2, 0, 0])
    """
    hit = torch.zeros_like(num_relevant)
    some = num_relevant > 0
    hit[some] = ranks[offsets(num_relevant)[:-1][some]].to(hit.dtype)
    return hit if at is None else hit.where(hit <= at, 0)


def offsets(num_relevant: Int[Tensor, " query"]) -> Int[Tensor, " query_and_one"]:
    """Where each query's part of a flat list starts, and at the end where the last one stops."""
    return torch.cat([num_relevant.new_zeros(1), num_relevant.cumsum(0)])


# ------------------------------------------------------------- ranking, from scores to ranks


def sorted_ranks(
    score: Float[Tensor, "query gallery"], row: Int[Tensor, " pairs"], item: Int[Tensor, " pairs"]
) -> tuple[Int[Tensor, " hits"], Int[Tensor, " query"]]:
    """Ranks of the given items, ascending within each row, and how many each row has.

    Args:
        score: Higher is better; minus infinity is not in the ranking.
        row: Of each item whose rank is wanted its row of `score`, ascending.
        item: Its column. Those that are not in the ranking are dropped.
    """
    kept = (score[row.to(score.device), item.to(score.device)] > -torch.inf).cpu()
    row, item = row[kept], item[kept]
    rank = ranks_by_counting if score.device.type == "cpu" else ranks_by_sorting
    key = row * (score.shape[1] + 1)  # larger than any rank, so that rows stay apart
    ranks = (key + rank(score, row, item)).sort().values - key
    return ranks.to(torch.int32), torch.bincount(row, minlength=len(score))


def ranks_by_counting(
    score: Float[Tensor, "query gallery"], row: Int[Tensor, " pairs"], item: Int[Tensor, " pairs"]
) -> Int[Tensor, " pairs"]:
    r"""Rank of each item in its row, ties by position. For the CPU.

    .. math::
        \mathrm{rank}(p) = 1 + |\{j : s_j > s_p\}| + |\{j < p : s_j = s_p\}|

    Only what scores at least as high as the last item wanted is sorted, by value: numpy does that
    an order of magnitude faster than it sorts positions.
    """
    ranks = np.empty(len(row), dtype=np.int64)
    start = offsets(torch.bincount(row, minlength=len(score))).tolist()
    scores, items = score.numpy(), item.numpy()

    def rank_row(i: int) -> None:
        if start[i] < start[i + 1]:
            part = slice(start[i], start[i + 1])
            ranks[part] = ranks_in_row(scores[i], items[part])

    for_each_row(rank_row, scores.shape)
    return torch.from_numpy(ranks)


def ranks_in_row(
    score: Float[np.ndarray, " gallery"], items: Int[np.ndarray, " relevant"]
) -> Int[np.ndarray, " relevant"]:
    """Rank of each of `items`, of which there is at least one: `ranks_by_counting` for one row."""
    wanted = score[items]
    above = np.compress(score >= wanted.min(), score)  # three times as fast as score[mask]
    above.sort()
    last = np.searchsorted(above, wanted, side="right")
    tied = last - np.searchsorted(above, wanted, side="left") > 1
    ranks: Int[np.ndarray, " relevant"] = len(above) - last + 1
    for value in np.unique(wanted[tied]) if tied.any() else ():
        equal = np.flatnonzero(score == value)
        mine = wanted == value
        ranks[mine] += np.searchsorted(equal, items[mine])  # those at earlier positions
    return ranks


def ranks_by_sorting(
    score: Float[Tensor, "query gallery"], row: Int[Tensor, " pairs"], item: Int[Tensor, " pairs"]
) -> Int[Tensor, " pairs"]:
    """Rank of each item in its row, ties by position. For a GPU: few large operations."""
    order = score.sort(dim=1, descending=True, stable=True).indices
    rank = torch.arange(1, score.shape[1] + 1, device=score.device).expand_as(order)
    ranks = torch.empty_like(order).scatter_(1, order, rank)
    return ranks[row.to(score.device), item.to(score.device)].cpu()


# -------------------------------------------------------- relevance, from labels to index lists


@dataclass(frozen=True)
class Lists:
    """A list of gallery items for each query: that of query `i` is `items[start[i] : stop[i]]`."""

    start: Int[np.ndarray, " query"]
    stop: Int[np.ndarray, " query"]
    items: Int[np.ndarray, " items"]

    @classmethod
    def one_each(cls, items: Int[np.ndarray, " query"]) -> "Lists":
        """Lists of one item."""
        return cls(np.arange(len(items)), np.arange(1, len(items) + 1), items)

    @property
    def longest(self) -> int:
        """The number of items in the longest list."""
        return int((self.stop - self.start).max())

    def pairs(self, first: int, last: int) -> tuple[Int[Tensor, " pairs"], Int[Tensor, " pairs"]]:
        """The lists of queries `first` to `last`, flat: row within these, and gallery item."""
        start, count = self.start[first:last], (self.stop - self.start)[first:last]
        row = np.repeat(np.arange(last - first), count)
        within = np.arange(len(row)) - (count.cumsum() - count)[row]
        return torch.from_numpy(row), torch.from_numpy(self.items[start[row] + within])


def what_is_relevant(
    labels: Sides | None, relevant: IndexLists | None, sizes: tuple[int, int]
) -> Lists:
    """Lists for each query what is relevant to it, by labels or as told."""
    if (labels is None) == (relevant is None):
        raise DataError(
            "what is relevant must be told by labels or by lists, but "
            f"{'neither' if labels is None else 'both'} came. Pass `query_labels` and "
            "`gallery_labels`, or else `relevant`."
        )
    if relevant is not None:
        return lists_by_index(relevant, sizes, "relevant")
    assert labels is not None
    return lists_by_label(*labels)


def same_label_and_camera(labels: Sides | None, cameras: Sides) -> Lists:
    """Lists for each query the gallery items of its label and its camera."""
    if labels is None:
        raise DataError(
            "cameras leave out items of the same label and camera, but relevance was given by "
            "lists, without labels. Put those items into `ignored`."
        )
    _, label = np.unique(np.concatenate(labels), return_inverse=True)
    values, camera = np.unique(np.concatenate(cameras), return_inverse=True)
    both = label * len(values) + camera
    return lists_by_label(both[: len(labels[0])], both[len(labels[0]) :])


def lists_by_label(
    query_labels: Int[np.ndarray, " query"], gallery_labels: Int[np.ndarray, " gallery"]
) -> Lists:
    """Lists for each query the gallery items of its label, in the order of the gallery."""
    items = np.argsort(gallery_labels, kind="stable")
    in_order = gallery_labels[items]
    return Lists(
        np.searchsorted(in_order, query_labels, side="left"),
        np.searchsorted(in_order, query_labels, side="right"),
        items,
    )


def lists_by_index(lists: IndexLists, sizes: tuple[int, int], name: str) -> Lists:
    """Lists as given, each item once and in the order of the gallery."""
    num_queries, num_gallery = sizes
    if len(lists) != num_queries:
        raise DataError(
            f"`{name}` must hold one list per query, but there are {len(lists)} lists and "
            f"{num_queries} queries. Pass an empty list for a query that has none."
        )
    arrays = [whole_numbers(part, None, f"{name}[{i}]") for i, part in enumerate(lists)]
    items = np.concatenate(arrays)
    row = np.repeat(np.arange(num_queries), [len(part) for part in arrays])
    outside = np.flatnonzero((items < 0) | (items >= num_gallery))
    if len(outside):
        where = outside[0]
        raise DataError(
            f"`{name}` must hold rows of the gallery, 0 to {num_gallery - 1}, but the list of "
            f"query {row[where]} holds {items[where]}. Check that lists and gallery belong "
            "together."
        )
    row, items = np.divmod(np.unique(row * num_gallery + items), num_gallery)
    stop = np.bincount(row, minlength=num_queries).cumsum()
    return Lists(np.concatenate([[0], stop[:-1]]), stop, items)


# ------------------------------------------------------------------------------------- checks


def check_settings(at: int | None, area: str) -> None:
    """Refuses what cannot be meant."""
    if at is not None and at < 1:
        raise ConfigError(
            f"`at` cuts the ranking at a rank from 1, but it is {at}. Pass 1 or more, or leave it "
            "out for the whole ranking."
        )
    if area not in AREAS:
        raise ConfigError(
            f"`area` must be one of {', '.join(AREAS)}, but it is {area!r}. Use 'step' "
            "for plain average precision, 'trapezoid' for ROxford and RParis."
        )


def unit(vectors: Float[Tensor, "rows dim"], name: str) -> Float[Tensor, "rows dim"]:
    """Makes the length of each row 1; a row of length 0 has no direction and is refused."""
    length = torch.linalg.vector_norm(vectors, dim=1, keepdim=True)
    zero = (length == 0).squeeze(1)
    if zero.any():
        raise DataError(
            f"{name} vectors must have a direction, but {int(zero.sum())} of {len(vectors)} are "
            f"zero, the first being row {int(zero.nonzero()[0])}. Embed these items again, or "
            "drop them."
        )
    return vectors.div(length)


def both_sides(
    query_values: Integers | None,
    gallery_values: Integers | None,
    sizes: tuple[int, int],
    name: str,
) -> Sides | None:
    """One integer per query and per gallery item, or none at all."""
    if query_values is None and gallery_values is None:
        return None
    if query_values is None or gallery_values is None:
        have, miss = ("gallery", "query") if query_values is None else ("query", "gallery")
        raise DataError(
            f"`query_{name}` and `gallery_{name}` go together, but only `{have}_{name}` came. "
            f"Pass `{miss}_{name}` too, or neither."
        )
    return (
        whole_numbers(query_values, sizes[0], f"query_{name}"),
        whole_numbers(gallery_values, sizes[1], f"gallery_{name}"),
    )


def whole_numbers(values: Integers, length: int | None, name: str) -> Int[np.ndarray, " values"]:
    """Turns integers of any container into an int64 array, of the given length."""
    array = values.detach().cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)
    if array.size == 0:
        array = array.astype(np.int64)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise DataError(
            f"`{name}` must be a flat list of integers, but it has dtype {array.dtype} and shape "
            f"{array.shape}. Number the labels 0, 1, 2, ... first, e.g. with "
            "`np.unique(labels, return_inverse=True)[1]`."
        )
    if length is not None and len(array) != length:
        raise DataError(
            f"`{name}` must hold one value per vector, but there are {len(array)} values and "
            f"{length} vectors. Check that both were taken from the same items, in one order."
        )
    return array.astype(np.int64, copy=False)
