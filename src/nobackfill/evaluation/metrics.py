"""Retrieval metrics: ranks the gallery for each query and scores the ranks of relevant items."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from nobackfill.errors import ConfigError, DataError
from nobackfill.evaluation.relevance import (
    IndexLists,
    Integers,
    Lists,
    both_sides,
    lists_by_index,
    same_label_and_camera,
    what_is_relevant,
)
from nobackfill.ops.nearest import check_finite, comparable, rows_per_block, score_blocks
from nobackfill.ops.ranking import send_to_cpu, sorted_ranks

AREAS = ("step", "trapezoid")


@dataclass(frozen=True, eq=False, repr=False)
class Retrieval:
    """The results of a search. All tensors are on the CPU.

    Attributes:
        average_precision: Average precision of each query, float64; NaN if nothing is relevant.
        first_hit: Rank of the best relevant item, from 1; 0 if there is none (up to `at`).
        num_relevant: Number of relevant items of each query, without ignored ones.
        ranks: Ranks of all relevant items, from 1, not cut by `at`: those of query 0, ascending,
            then those of query 1, and so on. `ranks[offsets[i] : offsets[i + 1]]` are query `i`'s.
        num_ranked: Number of gallery items that each query ranks, without ignored ones.
    """

    average_precision: Float[Tensor, " query"]
    first_hit: Int[Tensor, " query"]
    num_relevant: Int[Tensor, " query"]
    ranks: Int[Tensor, " hits"]
    num_ranked: Int[Tensor, " query"]

    def __repr__(self) -> str:
        return (
            f"Retrieval({len(self.num_relevant):,} queries, {len(self.ranks):,} relevant items, "
            f"mAP {100 * self.mean_average_precision:.2f})"
        )

    @property
    def offsets(self) -> Int[Tensor, " query_and_one"]:
        """Start of the ranks of each query in `ranks`; the last entry is the number of ranks."""
        return offsets(self.num_relevant)

    @property
    def mean_average_precision(self) -> float:
        """The mean over queries with a relevant item; NaN if there are none."""
        return self.average_precision.nanmean().item()

    def recall(self, k: int) -> float:
        """Share of the queries with a relevant item that have one in the top `k`.

        It does not depend on the cut-off `at`.
        """
        if k < 1:
            raise ConfigError(f"recall needs the top k of 1 or more, but k is {k}.")
        best = self.ranks[self.offsets[:-1][self.num_relevant > 0]]
        return (best <= k).double().mean().item()

    def ndcg(self, k: int) -> float:
        """Mean normalised discounted cumulative gain of the top `k`; see `ndcg`."""
        return ndcg(self.ranks, self.num_relevant, at=k).nanmean().item()

    def precision_at(self, k: int) -> float:
        """Mean average precision of rankings cut at `k`; it does not depend on `at`."""
        return average_precision(self.ranks, self.num_relevant, at=k).nanmean().item()

    def found_by(self, k: int) -> Bool[Tensor, " query"]:
        """Marks the queries that have a relevant item in the top `k`."""
        check_settings(k, "step")
        return first_hit(self.ranks, self.num_relevant, at=k) > 0

    @property
    def in_order(self) -> float:
        r"""The share of triples in order: a query, a relevant item, and an irrelevant one after it.

        .. math::
            1 - \frac{\sum_i \sum_j (r_{ij} - j)}{\sum_i R_i (N_i - R_i)}

        with the rank :math:`r_{ij}` of query `i`'s `j`-th of :math:`R_i` relevant items, among the
        :math:`N_i` ranked items: :math:`r_{ij} - j` irrelevant items come before it. This is how
        often the ideal of compatible training holds: :math:`d(new_i, old_j) < d(new_i, old_k)` for
        all :math:`y_i = y_j \ne y_k`. NaN if there is no triple.
        """
        place = torch.arange(len(self.ranks)) - self.offsets[:-1].repeat_interleave(
            self.num_relevant
        )
        wrong = (self.ranks - 1 - place).sum().double()
        return (
            1 - wrong / (self.num_relevant * (self.num_ranked - self.num_relevant)).sum()
        ).item()


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
    progress: Callable[[int], None] | None = None,
) -> Retrieval:
    """Ranks the gallery by cosine similarity for each query, and scores the rankings.

    Items with the label of the query, or those in `relevant`, are relevant. Ignored items, relevant
    or not, are removed before ranks are counted. Items of equal score are ranked in the order of
    the gallery. Scores are computed in blocks of queries.

    Args:
        query: One row per query; any length but zero.
        gallery: One row per gallery item, on the same device.
        query_labels: Label of each query, an integer.
        gallery_labels: Label of each gallery item, an integer.
        relevant: Gallery rows of the relevant items of each query, in place of labels.
        ignored: Gallery rows of the ignored items of each query (junk).
        query_camera: Camera of each query, an integer. Items with the label *and* the camera of
            the query are ignored, as in person re-identification.
        gallery_camera: Camera of each gallery item, an integer.
        exclude_self: Whether query `i` ignores gallery item `i` (leave-one-out).
        at: Cut-off rank of the average precision; see `average_precision`.
        area: "step", or "trapezoid" as in ROxford and RParis.
        progress: Called after each block with the number of queries done.

    Raises:
        DataError: If vectors, labels, cameras or lists are invalid.
        ConfigError: If `at` or `area` is invalid.

    Example:
        >>> query = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
        >>> gallery = torch.tensor([[1.0, 0.1], [1.0, 0.3], [0.1, 1.0]])
        >>> result = retrieval(query, gallery, [7, 7], [7, 8, 7])
        >>> result.average_precision, result.first_hit
        (tensor([0.8333, 0.8333], dtype=torch.float64), tensor([1, 1]))
        >>> round(result.mean_average_precision, 4), result.recall(1)
        (0.8333, 1.0)
    """
    # check the inputs
    check_settings(at, area)
    query, gallery = comparable(query, gallery, exclude_self=exclude_self)
    sizes = len(query), len(gallery)
    lengths = [length_of(side) for side in (query, gallery)]  # runs on a GPU while labels are read
    labels = both_sides(query_labels, gallery_labels, sizes, "labels")
    cameras = both_sides(query_camera, gallery_camera, sizes, "camera")
    relevance = what_is_relevant(labels, relevant, sizes, gallery.device)
    query, gallery = unit(query, "query", lengths[0]), unit(gallery, "gallery", lengths[1])
    # list what is ignored
    hidden = []
    if ignored is not None:
        hidden.append(lists_by_index(ignored, sizes, "ignored"))
    if cameras is not None:
        hidden.append(same_label_and_camera(labels, cameras))
    if exclude_self:
        hidden.append(Lists.one_each(np.arange(len(query))))
    # rank the gallery, a block of queries at a time
    sent = []
    bytes_per_row = len(gallery) * gallery.element_size() + 48 * relevance.longest()
    block = rows_per_block(bytes_per_row, gallery.device)
    for first, score in score_blocks(query, gallery, block, unit=True):
        last = first + len(score)
        taken_out = [lists.pairs(first, last) for lists in hidden]
        for row, item in taken_out:
            score[row.to(score.device), item.to(score.device)] = -torch.inf
        ranks, num_relevant = sorted_ranks(
            score,
            *relevance.pairs(first, last),
            complete=not hidden,
            longest=relevance.longest(first, last),
        )
        num_ranked = len(gallery) - count_once(taken_out, len(score), len(gallery))
        sent.append(send_to_cpu(ranks, num_relevant, num_ranked))
        if progress is not None:
            progress(last)
    # score the ranks
    ranks, num_relevant, num_ranked = (
        torch.cat(part) for part in zip(*(arrived() for arrived in sent), strict=True)
    )
    return Retrieval(
        average_precision(ranks, num_relevant, at=at, area=area),
        first_hit(ranks, num_relevant, at=at),
        num_relevant,
        ranks,
        num_ranked,
    )


def average_precision(
    ranks: Int[Tensor, " hits"],
    num_relevant: Int[Tensor, " query"],
    *,
    at: int | None = None,
    area: str = "step",
) -> Float[Tensor, " query"]:
    r"""Average precision of each query, from the ranks of its relevant items.

    .. math::
        \mathrm{AP@}k = \frac{1}{\min(R, k)} \sum_{j : r_j \le k} p_j, \qquad
        p_j = \frac{j}{r_j} \;\text{(step)}, \quad
        p_j = \frac{1}{2} \Bigl( \frac{j - 1}{r_j - 1} + \frac{j}{r_j} \Bigr) \;\text{(trapezoid)},

    with :math:`r_1 < r_2 < \dots < r_R` the ranks, from 1, and :math:`k` infinite without `at`.
    The first fraction of the trapezoid is 1 if :math:`r_j = 1`.

    Args:
        ranks: Ranks of query 0, ascending, then those of query 1, and so on.
        num_relevant: Number of ranks of each query, :math:`R`.
        at: Cut-off rank :math:`k`.
        area: Area under the precision-recall curve, by "step" or by "trapezoid".

    Returns:
        One float64 in [0, 1] per query; NaN if nothing is relevant.

    Example:
        >>> average_precision(torch.tensor([1, 2, 5]), torch.tensor([3, 0]))
        tensor([0.8667,    nan], dtype=torch.float64)
        >>> average_precision(torch.tensor([1, 2, 5]), torch.tensor([3]), area="trapezoid")
        tensor([0.8500], dtype=torch.float64)
    """
    rank, number = ranks.numpy(), num_relevant.numpy()  # torch threads would wait for each other
    start = number.cumsum() - number
    hit = np.arange(1, len(rank) + 1) - np.repeat(start, number)  # j
    precision = hit / rank
    if area == "trapezoid":
        before = np.where(rank == 1, 1.0, (hit - 1) / np.maximum(rank - 1, 1))
        precision = (before + precision) / 2
    if at is not None:
        precision *= rank <= at
        number = np.minimum(number, at)  # the most hits that fit
    mean, counted = np.full(len(number), np.nan), number > 0
    mean[counted] = np.add.reduceat(precision, start[counted]) / number[counted]
    return torch.from_numpy(mean)


def ndcg(
    ranks: Int[Tensor, " hits"], num_relevant: Int[Tensor, " query"], *, at: int
) -> Float[Tensor, " query"]:
    r"""Normalised discounted cumulative gain of each query, with binary relevance.

    .. math::
        \mathrm{nDCG@}k = \frac{\sum_{j : r_j \le k} 1 / \log_2(r_j + 1)}
        {\sum_{i=1}^{\min(R, k)} 1 / \log_2(i + 1)}

    with the rank :math:`r_j` of the `j`-th of `R` relevant items; NaN if `R` is 0.

    Example:
        >>> ndcg(torch.tensor([2]), torch.tensor([1]), at=10)  # log 2 / log 3
        tensor([0.6309], dtype=torch.float64)
    """
    check_settings(at, "step")
    query = torch.repeat_interleave(torch.arange(len(num_relevant)), num_relevant)
    gain = torch.where(ranks <= at, 1 / (ranks.double() + 1).log2(), 0.0)
    total = torch.zeros(len(num_relevant), dtype=torch.float64).index_add(0, query, gain)
    ideal = (1 / torch.arange(2, at + 2).double().log2()).cumsum(0)
    best = ideal[num_relevant.clamp(1, at) - 1]
    return torch.where(num_relevant > 0, total / best, torch.nan)


def first_hit(
    ranks: Int[Tensor, " hits"], num_relevant: Int[Tensor, " query"], *, at: int | None = None
) -> Int[Tensor, " query"]:
    """Rank of the best relevant item of each query; 0 if there is none, or none up to `at`.

    Example:
        >>> first_hit(torch.tensor([2, 3, 9]), torch.tensor([2, 0, 1]), at=5)
        tensor([2, 0, 0])
    """
    counted = num_relevant.numpy() > 0
    hit = np.zeros(len(counted), dtype=np.int64)
    hit[counted] = ranks.numpy()[offsets(num_relevant).numpy()[:-1][counted]]
    return torch.from_numpy(hit if at is None else np.where(hit <= at, hit, 0))


def count_once(
    pairs: Sequence[tuple[Int[Tensor, " _"], Int[Tensor, " _"]]],
    queries: int,
    num_gallery: int,
) -> Int[Tensor, " query"]:
    """Number of different gallery items that several lists of pairs have for each query."""
    if not pairs:
        return torch.zeros(queries, dtype=torch.int64)
    both = torch.cat([row * num_gallery + item for row, item in pairs]).unique()
    number: Tensor = (both // num_gallery).bincount(minlength=queries)
    return number


def offsets(num_relevant: Int[Tensor, " query"]) -> Int[Tensor, " query_and_one"]:
    """Start of each query's part of a flat list, and the length of the list."""
    return torch.cat([num_relevant.new_zeros(1), num_relevant.cumsum(0)])


def check_settings(at: int | None, area: str) -> None:
    """Raises if a setting is invalid."""
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


def unit(
    vectors: Float[Tensor, "rows dim"], name: str, length: Float[Tensor, "rows 1"] | None = None
) -> Float[Tensor, "rows dim"]:
    """Normalises each row to length 1; raises if a row is zero."""
    length = length_of(vectors) if length is None else length
    shortest, longest = torch.stack(length.aminmax()).tolist()  # one synchronisation of a GPU
    if not math.isfinite(longest):
        check_finite(vectors, name)
        largest = vectors.abs().amax(dim=1, keepdim=True)
        return unit(vectors / largest.clamp(min=1), name)  # squares overflowed
    if shortest == 0:
        zero = (length == 0).squeeze(1)
        raise DataError(
            f"{name} vectors must have a direction, but {int(zero.sum())} of {len(vectors)} are "
            f"zero, the first being row {int(zero.nonzero()[0])}. Embed these items again, or "
            "drop them."
        )
    is_unit = max(1 - shortest, longest - 1) <= 8 * torch.finfo(length.dtype).eps
    return vectors if is_unit else vectors.div(length)  # no copy of unit vectors


def length_of(vectors: Float[Tensor, "rows dim"]) -> Float[Tensor, "rows 1"]:
    """Length of each row."""
    length: Tensor = torch.linalg.vector_norm(vectors, dim=1, keepdim=True)
    return length
