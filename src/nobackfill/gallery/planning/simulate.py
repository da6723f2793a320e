"""Results of queries in a gallery of which some items have been embedded again."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from nobackfill.evaluation.file_columns import rows_of
from nobackfill.evaluation.metrics import unit
from nobackfill.evaluation.mixed_scores import every_so_many, mixed, unrelated_scale
from nobackfill.evaluation.rank_metrics import average_precision
from nobackfill.evaluation.relevance import lists_by_label
from nobackfill.evaluation.score_scale import Scale
from nobackfill.evaluation.search_plan import SearchPlan
from nobackfill.ops.nearest import rows_per_block
from nobackfill.ops.ranking import sorted_ranks
from nobackfill.vectors import Vectors


@dataclass(frozen=True, eq=False)
class Halves:
    """The same queries and gallery twice, in vectors of unit length."""

    query_old: Float[Tensor, "query old_dim"]  # queries for items that are still old
    gallery_old: Float[Tensor, "gallery old_dim"]
    query_new: Float[Tensor, "query new_dim"]  # queries for items that were embedded again
    gallery_new: Float[Tensor, "gallery new_dim"]

    @classmethod
    def of(
        cls, plan: SearchPlan, old: Vectors, new: Vectors, query_for_old: Vectors, device: str
    ) -> "Halves":
        """Reads them from files; `compatible_dim` of the queries searches the old half."""
        dim = query_for_old.compatible_dim
        return cls(
            _unit(rows_of(query_for_old, plan.query_ids)[:, :dim], device),
            _unit(rows_of(old, plan.gallery_ids), device),
            _unit(rows_of(new, plan.query_ids), device),
            _unit(rows_of(new, plan.gallery_ids), device),
        )


def scales_of(plan: SearchPlan, halves: Halves) -> tuple[Scale, Scale]:
    """Returns the scales of the scores on the old and on the new half, from a sample of queries."""
    assert plan.query_labels is not None
    assert plan.gallery_labels is not None
    rows = every_so_many(torch.arange(len(plan.query_ids)))
    old, new = (
        unrelated_scale(query[rows] @ gallery.T, plan.query_labels[rows], plan.gallery_labels)
        for query, gallery in (
            (halves.query_old, halves.gallery_old),
            (halves.query_new, halves.gallery_new),
        )
    )
    return old, new


def precision_when(
    plan: SearchPlan,
    halves: Halves,
    is_new: Bool[Tensor, "cases gallery"],
    scales: tuple[Scale, Scale] | None,
    watch: Callable[[int], None] = lambda done: None,
) -> Float[np.ndarray, "cases query"]:
    """Returns the average precision of each query in each case of which items are new.

    See `mixed` for `scales`; `watch` receives the number of queries that are done.
    """
    assert plan.query_labels is not None
    assert plan.gallery_labels is not None
    relevance = lists_by_label(plan.query_labels.numpy(), plan.gallery_labels.numpy())
    blocks, device = [], halves.gallery_old.device
    is_new = is_new.to(device)
    number = len(plan.query_ids)
    block = rows_per_block(16 * len(plan.gallery_ids))
    for first in range(0, number, block):
        last = min(first + block, number)
        ignored = plan.is_ignored(torch.arange(first, last)).to(device)
        on_old = halves.query_old[first:last] @ halves.gallery_old.T
        on_new = halves.query_new[first:last] @ halves.gallery_new.T
        on_old, on_new = (scores.masked_fill(ignored, -torch.inf) for scores in (on_old, on_new))
        part = []
        for case in is_new:
            score = mixed(on_old, on_new, case, scales)
            ranks, count = sorted_ranks(score, *relevance.pairs(first, last))
            part.append(average_precision(ranks.cpu(), count.cpu()))
        blocks.append(torch.stack(part))
        watch(last)
    return torch.cat(blocks, dim=1).numpy()


def _unit(vectors: Float[Tensor, "rows dim"], device: str) -> Float[Tensor, "rows dim"]:
    vectors = vectors.to(device)
    return unit(vectors.to(torch.promote_types(vectors.dtype, torch.float32)), "stored")


def cases(
    rows: Mapping[str, Int[Tensor, " gallery"]], shares: Sequence[float], number: int
) -> Bool[Tensor, "cases gallery"]:
    """Returns which items are new: none, all, then those of each order at each share between."""
    cases = [torch.zeros(number, dtype=torch.bool), torch.ones(number, dtype=torch.bool)]
    for order in rows.values():
        place = torch.empty(number, dtype=torch.int64)
        place[order] = torch.arange(number)
        cases += [place < round(share * number) for share in shares[1:-1]]
    return torch.stack(cases)


def by_order(
    precision: Float[np.ndarray, "cases query"], names: Sequence[str], shares: Sequence[float]
) -> dict[str, Float[np.ndarray, "share query"]]:
    """Splits the results of `cases` by order, from no new item to all."""
    between = len(shares) - 2
    return {
        name: np.concatenate(
            [
                precision[:1],
                precision[2 + place * between : 2 + (place + 1) * between],
                precision[1:2],
            ]
        )
        for place, name in enumerate(names)
    }
