"""Retrieval metrics: the ranks of the relevant items in, one value per query out."""

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
from nobackfill.ops.ranking import on_the_way_back, sorted_ranks

AREAS = ("step", "trapezoid")


@dataclass(frozen=True, eq=False)
class Retrieval:
    """How well each query found what is relevant to it. All tensors are on the CPU.

    Attributes:
        average_precision: Of each query, float64; NaN where nothing is relevant.
        first_hit: Rank of the best relevant item, from 1; 0 where there is none (up to `at`).
        num_relevant: How many relevant items each query has, without the ignored ones.
        ranks: Ranks of all relevant items, from 1, never cut: first those of query 0, ascending,
            then those of query 1, and so on. `ranks[offsets[i] : offsets[i + 1]]` are query `i`'s.
        num_ranked: How many gallery items each query ranks, without the ignored ones.
    """

    average_precision: Float[Tensor, " query"]
    first_hit: Int[Tensor, " query"]
    num_relevant: Int[Tensor, " query"]
    ranks: Int[Tensor, " hits"]
    num_ranked: Int[Tensor, " query"]

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

    def ndcg(self, k: int) -> float:
        """The mean normalised discounted cumulative gain of the top `k`; see `ndcg`."""
        return ndcg(self.ranks, self.num_relevant, at=k).nanmean().item()

    def precision_at(self, k: int) -> float:
        """The mean average precision with rankings cut at `k`, whatever `average_precision` is."""
        return average_precision(self.ranks, self.num_relevant, at=k).nanmean().item()

    def found_by(self, k: int) -> Bool[Tensor, " query"]:
        """Whether each query has a hit in the top `k`; False where nothing is relevant."""
        check_settings(k, "step")
        return first_hit(self.ranks, self.num_relevant, at=k) > 0

    @property
    def in_order(self) -> float:
        r"""The share of triples in order: something relevant before something that is not.

        .. math::
            1 - \frac{\sum_i \sum_j (r_{ij} - j)}{\sum_i R_i (N_i - R_i)}

        with the rank :math:`r_{ij}` of query `i`'s `j`-th of :math:`R_i` relevant items, among the
        :math:`N_i` that are ranked: :math:`r_{ij} - j` others come before it. This is how often
        the ideal of compatible training holds: :math:`d(new_i, old_j) < d(new_i, old_k)` for all
        :math:`y_i = y_j \ne y_k`. NaN where there is no such triple.
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
        progress: Told after each block of queries how many are done.

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
    lengths = [length_of(side) for side in (query, gallery)]  # a GPU is done when labels are read
    labels = both_sides(query_labels, gallery_labels, sizes, "labels")
    cameras = both_sides(query_camera, gallery_camera, sizes, "camera")
    relevance = what_is_relevant(labels, relevant, sizes, gallery.device)
    query, gallery = unit(query, "query", lengths[0]), unit(gallery, "gallery", lengths[1])
    hidden = []
    if ignored is not None:
        hidden.append(lists_by_index(ignored, sizes, "ignored"))
    if cameras is not None:
        hidden.append(same_label_and_camera(labels, cameras))
    if exclude_self:
        hidden.append(Lists.one_each(np.arange(len(query))))

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
        sent.append(on_the_way_back(ranks, num_relevant, num_ranked))
        if progress is not None:
            progress(last)
    parts = [result_of(*arrived(), at=at, area=area) for arrived in sent]
    return Retrieval(*(torch.cat(part) for part in zip(*parts, strict=True)))


def result_of(
    ranks: Int[Tensor, " hits"],
    num_relevant: Int[Tensor, " query"],
    num_ranked: Int[Tensor, " query"],
    *,
    at: int | None,
    area: str,
) -> tuple[Tensor, ...]:
    """What `Retrieval` tells of some queries."""
    precision = average_precision(ranks, num_relevant, at=at, area=area)
    best = first_hit(ranks, num_relevant, at=at)
    return precision, best, num_relevant, ranks, num_ranked


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
    rank, number = ranks.numpy(), num_relevant.numpy()  # threads of torch would wait for each other
    start = number.cumsum() - number
    found = np.arange(1, len(rank) + 1)
    found -= np.repeat(start, number)  # j
    precision = found / rank
    if area == "trapezoid":
        before = np.where(rank == 1, 1.0, (found - 1) / np.maximum(rank - 1, 1))
        precision = (before + precision) / 2
    if at is not None:
        precision *= rank <= at
        number = np.minimum(number, at)  # the most hits such a short ranking could show
    mean, some = np.full(len(number), np.nan), number > 0
    mean[some] = np.add.reduceat(precision, start[some]) / number[some]
    return torch.from_numpy(mean)


def ndcg(
    ranks: Int[Tensor, " hits"], num_relevant: Int[Tensor, " query"], *, at: int
) -> Float[Tensor, " query"]:
    r"""Normalised discounted cumulative gain of each query; all that is relevant is so alike.

    .. math::
        \mathrm{nDCG@}k = \frac{\sum_{j : r_j \le k} 1 / \log_2(r_j + 1)}
        {\sum_{i=1}^{\min(R, k)} 1 / \log_2(i + 1)}

    with the rank :math:`r_j` of the `j`-th of `R` relevant items; NaN where `R` is 0.

    Example:
        >>> ndcg(torch.tensor([2]), torch.tensor([1]), at=10)  # log 2 / log 3
        tensor([0.6309], dtype=torch.float64)
    """
    check_settings(at, "step")
    query = torch.repeat_interleave(torch.arange(len(num_relevant)), num_relevant)
    gain = torch.where(ranks <= at, 1 / (ranks.double() + 1).log2(), 0.0)
    found = torch.zeros(len(num_relevant), dtype=torch.float64).index_add(0, query, gain)
    ideal = (1 / torch.arange(2, at + 2).double().log2()).cumsum(0)
    best = ideal[num_relevant.clamp(1, at) - 1]
    return torch.where(num_relevant > 0, found / best, torch.nan)


def first_hit(
    ranks: Int[Tensor, " hits"], num_relevant: Int[Tensor, " query"], *, at: int | None = None
) -> Int[Tensor, " query"]:
    """Rank of the best relevant item of each query; 0 where there is none, or none up to `at`.

    Example:
        >>> first_hit(torch.tensor([2, 3, 9]), torch.tensor([2, 0, 1]), at=5)
        tensor([2, 0, 0])
    """
    some = num_relevant.numpy() > 0
    hit = np.zeros(len(some), dtype=np.int64)
    hit[some] = ranks.numpy()[offsets(num_relevant).numpy()[:-1][some]]
    return torch.from_numpy(hit if at is None else np.where(hit <= at, hit, 0))


def count_once(
    pairs: Sequence[tuple[Int[Tensor, " _"], Int[Tensor, " _"]]],
    queries: int,
    num_gallery: int,
) -> Int[Tensor, " query"]:
    """How many gallery items the lists name for each query, each counted once.

    Args:
        pairs: Of several lists: queries, and their gallery items.
        queries: How many there are.
        num_gallery: How many gallery items there are.
    """
    if not pairs:
        return torch.zeros(queries, dtype=torch.int64)
    both = torch.cat([row * num_gallery + item for row, item in pairs]).unique()
    number: Tensor = (both // num_gallery).bincount(minlength=queries)
    return number


def offsets(num_relevant: Int[Tensor, " query"]) -> Int[Tensor, " query_and_one"]:
    """Where each query's part of a flat list starts, and at the end where the last one stops."""
    return torch.cat([num_relevant.new_zeros(1), num_relevant.cumsum(0)])


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


def unit(
    vectors: Float[Tensor, "rows dim"], name: str, length: Float[Tensor, "rows 1"] | None = None
) -> Float[Tensor, "rows dim"]:
    """Makes the length of each row 1, but for rounding; a row of length 0 is refused.

    Args:
        vectors: One row each.
        name: What an error calls them.
        length: That of `length_of`, if it is known.
    """
    length = length_of(vectors) if length is None else length
    shortest, longest = torch.stack(length.aminmax()).tolist()  # a GPU is waited for once
    if not math.isfinite(longest):
        check_finite(vectors, name)
        largest = vectors.abs().amax(dim=1, keepdim=True)
        return unit(vectors / largest.clamp(min=1), name)  # their squares had overflowed
    if shortest == 0:
        zero = (length == 0).squeeze(1)
        raise DataError(
            f"{name} vectors must have a direction, but {int(zero.sum())} of {len(vectors)} are "
            f"zero, the first being row {int(zero.nonzero()[0])}. Embed these items again, or "
            "drop them."
        )
    is_unit = max(1 - shortest, longest - 1) <= 8 * torch.finfo(length.dtype).eps
    return vectors if is_unit else vectors.div(length)  # no copy of what is unit but for rounding


def length_of(vectors: Float[Tensor, "rows dim"]) -> Float[Tensor, "rows 1"]:
    """How long each row is."""
    length: Tensor = torch.linalg.vector_norm(vectors, dim=1, keepdim=True)
    return length
