"""What queries find in a gallery of which some items have been embedded again."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from nobackfill.evaluation.file_columns import rows_of
from nobackfill.evaluation.metrics import average_precision, unit
from nobackfill.evaluation.mixed_scores import every_so_many, mixed, unrelated_scale
from nobackfill.evaluation.relevance import lists_by_label
from nobackfill.evaluation.score_scale import Scale
from nobackfill.evaluation.search_plan import SearchPlan
from nobackfill.ops.nearest import rows_per_block
from nobackfill.ops.ranking import sorted_ranks
from nobackfill.vectors import Vectors


@dataclass(frozen=True, eq=False)
class Halves:
    """The same queries and gallery twice, in vectors of unit length.

    Attributes:
        query_old: Queries, as they ask what is still old.
        gallery_old: The stored vectors.
        query_new: Queries, as they ask what has been embedded again.
        gallery_new: New vectors of the same items.
    """

    query_old: Float[Tensor, "query old_dim"]
    gallery_old: Float[Tensor, "gallery old_dim"]
    query_new: Float[Tensor, "query new_dim"]
    gallery_new: Float[Tensor, "gallery new_dim"]

    @classmethod
    def of(
        cls, plan: SearchPlan, old: Vectors, new: Vectors, query_for_old: Vectors, device: str
    ) -> "Halves":
        """Takes them from files; of queries only what meets older galleries asks the old half."""
        dim = query_for_old.compatible_dim
        return cls(
            _unit(rows_of(query_for_old, plan.query_ids)[:, :dim], device),
            _unit(rows_of(old, plan.gallery_ids), device),
            _unit(rows_of(new, plan.query_ids), device),
            _unit(rows_of(new, plan.gallery_ids), device),
        )


def scales_of(plan: SearchPlan, halves: Halves) -> tuple[Scale, Scale]:
    """Scales of the scores on the old and on the new half, from a sample of queries."""
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
    """The average precision of each query, in each case of which items have been embedded again.

    Args:
        plan: Who asks, who is searched, and what counts as found.
        halves: Their vectors.
        is_new: The cases.
        scales: Scales of the old and of the new half; see `mixed`.
        watch: Told how many queries are done.
    """
    assert plan.query_labels is not None
    assert plan.gallery_labels is not None
    relevance = lists_by_label(plan.query_labels.numpy(), plan.gallery_labels.numpy())
    found, device = [], halves.gallery_old.device
    is_new = is_new.to(device)
    number = len(plan.query_ids)
    block = rows_per_block(16 * len(plan.gallery_ids))
    for first in range(0, number, block):
        last = min(first + block, number)
        ignored = plan.is_ignored(first, last).to(device)
        on_old = halves.query_old[first:last] @ halves.gallery_old.T
        on_new = halves.query_new[first:last] @ halves.gallery_new.T
        on_old, on_new = (one.masked_fill(ignored, -torch.inf) for one in (on_old, on_new))
        part = []
        for case in is_new:
            score = mixed(on_old, on_new, case, scales)
            ranks, count = sorted_ranks(score, *relevance.pairs(first, last))
            part.append(average_precision(ranks.cpu(), count.cpu()))
        found.append(torch.stack(part))
        watch(last)
    return torch.cat(found, dim=1).numpy()


def _unit(vectors: Float[Tensor, "rows dim"], device: str) -> Float[Tensor, "rows dim"]:
    vectors = vectors.to(device)
    return unit(vectors.to(torch.promote_types(vectors.dtype, torch.float32)), "stored")


def cases(
    rows: Mapping[str, Int[Tensor, " gallery"]], shares: Sequence[float], number: int
) -> Bool[Tensor, "cases gallery"]:
    """Which items are new: none, all, then of each order at each share between."""
    cases = [torch.zeros(number, dtype=torch.bool), torch.ones(number, dtype=torch.bool)]
    for order in rows.values():
        place = torch.empty(number, dtype=torch.int64)
        place[order] = torch.arange(number)
        cases += [place < round(share * number) for share in shares[1:-1]]
    return torch.stack(cases)


def by_order(
    found: Float[np.ndarray, "cases query"], names: Sequence[str], shares: Sequence[float]
) -> dict[str, Float[np.ndarray, "share query"]]:
    """What `cases` came to, of each order from none to all."""
    between = len(shares) - 2
    return {
        name: np.concatenate(
            [found[:1], found[2 + place * between : 2 + (place + 1) * between], found[1:2]]
        )
        for place, name in enumerate(names)
    }
