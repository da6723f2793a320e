"""Retrieval metrics: ranks the gallery for each query and scores the ranks of relevant items."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from nobackfill.core.page import Readable
from nobackfill.errors import ConfigError, DataError
from nobackfill.evaluation.rank_metrics import (
    average_precision,
    check_settings,
    first_hit,
    ndcg,
    offsets,
)
from nobackfill.evaluation.relevance import (
    IndexLists,
    Lists,
    both_sides,
    lists_by_index,
    same_label_and_camera,
    what_is_relevant,
)
from nobackfill.ops.nearest import check_finite, comparable, rows_per_block, score_blocks
from nobackfill.ops.ranking import send_to_cpu, sorted_ranks
from nobackfill.vectors.matrix import Data

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True, eq=False, repr=False)
class Retrieval(Readable):
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

    def to_pandas(self) -> "DataFrame":
        """Returns a DataFrame of one row per query. Requires pandas."""
        from nobackfill.core.notebook import data_frame

        names = ("average_precision", "first_hit", "num_relevant", "num_ranked")
        return data_frame({name: getattr(self, name).numpy() for name in names})

    @property
    def offsets(self) -> Int[Tensor, " query_and_one"]:
        """Start of the ranks of each query in `ranks`; the last entry is the number of ranks."""
        return offsets(self.num_relevant)

    @property
    def mean_average_precision(self) -> float:
        """The mean over queries with a relevant item; NaN if there are none."""
        return self.average_precision.nanmean().item()

    def recall(self, k: int) -> float:
        """Returns the share of the queries with a relevant item that have one in the top `k`.

        It does not depend on the cut-off `at`.
        """
        if k < 1:
            raise ConfigError(f"recall needs the top k of 1 or more, but k is {k}.")
        best = self.ranks[self.offsets[:-1][self.num_relevant > 0]]
        return (best <= k).double().mean().item()

    def ndcg(self, k: int) -> float:
        """Returns the mean normalised discounted cumulative gain of the top `k`; see `ndcg`."""
        return ndcg(self.ranks, self.num_relevant, at=k).nanmean().item()

    def precision_at(self, k: int) -> float:
        """Returns the mean average precision of rankings cut at `k`; it does not depend on `at`."""
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
    query: Data,
    gallery: Data,
    query_labels: Any = None,
    gallery_labels: Any = None,
    *,
    relevant: IndexLists | None = None,
    pairs: Any = None,
    ignored: IndexLists | None = None,
    query_camera: Any = None,
    gallery_camera: Any = None,
    exclude_self: bool = False,
    at: int | None = None,
    area: str = "step",
    progress: Callable[[int], None] | None = None,
) -> Retrieval:
    """Ranks the gallery by cosine similarity for each query, and scores the rankings.

    Vectors may be NumPy arrays, torch tensors, lists, tables (pandas, polars, pyarrow), paths or
    `Vectors`; see `nobackfill.as_vectors`. Items with the label of the query, or those in
    `relevant` or `pairs`, are relevant. Ignored items, relevant or not, are removed before ranks
    are counted. Items of equal score are ranked in the order of the gallery. Scores are computed in
    blocks of queries.

    Args:
        query: One row per query; any length but zero.
        gallery: One row per gallery item; a tensor must be on the device of the queries.
        query_labels: Label of each query, text or an integer; None for those of the data.
        gallery_labels: Label of each gallery item, likewise.
        relevant: Gallery rows of the relevant items of each query, in place of labels.
        pairs: Relevant items of each query by id (or row number), in place of labels: a mapping,
            (query, relevant) tuples, a table of both columns, or a path.
        ignored: Gallery rows of the ignored items of each query (junk).
        query_camera: Camera of each query, text or an integer. Items with the label *and* the
            camera of the query are ignored, as in person re-identification.
        gallery_camera: Camera of each gallery item, likewise.
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
    # read and check the inputs
    check_settings(at, area)
    if pairs is not None or not (isinstance(query, Tensor) and isinstance(gallery, Tensor)):
        from nobackfill.evaluation.search_inputs import read_search

        query, gallery, query_labels, gallery_labels, relevant = read_search(
            query, gallery, query_labels, gallery_labels, relevant=relevant, pairs=pairs
        )
    query, gallery = comparable(query, gallery, exclude_self=exclude_self)
    sizes = len(query), len(gallery)
    lengths = [length_of(side) for side in (query, gallery)]  # runs on a GPU while labels are read
    labels = both_sides(query_labels, gallery_labels, sizes, "labels")
    cameras = both_sides(query_camera, gallery_camera, sizes, "camera")
    relevance = what_is_relevant(labels, relevant, sizes, gallery.device)
    query, gallery = unit(query, "query", lengths[0]), unit(gallery, "gallery", lengths[1])
    # list ignored items
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


def count_once(
    pairs: Sequence[tuple[Int[Tensor, " _"], Int[Tensor, " _"]]],
    queries: int,
    num_gallery: int,
) -> Int[Tensor, " query"]:
    """Returns the number of different gallery items of each query in several lists of pairs."""
    if not pairs:
        return torch.zeros(queries, dtype=torch.int64)
    both = torch.cat([row * num_gallery + item for row, item in pairs]).unique()
    number: Tensor = (both // num_gallery).bincount(minlength=queries)
    return number


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
    """Returns the length of each row."""
    length: Tensor = torch.linalg.vector_norm(vectors, dim=1, keepdim=True)
    return length
