"""First results of each query, by pair of models; they need no labels."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from nobackfill.errors import DataError
from nobackfill.evaluation.file_columns import rows_of
from nobackfill.evaluation.search import Progress, part_of
from nobackfill.evaluation.search_plan import SearchPlan
from nobackfill.ops.nearest import best_by_partition, best_by_topk, rows_per_block
from nobackfill.vectors import Vectors

DEPTH = 100  # number of first results that are searched


class Ranking(NamedTuple):
    """First results of each query, best first."""

    places: Int[Tensor, "query k"]  # rows of the gallery
    scores: Float[Tensor, "query k"]  # their cosines


def rank_pairs(
    plan: SearchPlan,
    files: Mapping[str, tuple[Vectors, Vectors, int | None]],
    device: torch.device | str,
    progress: Progress | None = None,
) -> dict[str, Ranking]:
    """Searches each pair of files: query, gallery, and number of dimensions of a query."""
    number = len(plan.query_ids)
    return {
        pair: first_results(
            plan,
            rows_of(queries, plan.query_ids)[:, :dim].to(device),
            rows_of(gallery, plan.gallery_ids).to(device),
            progress=part_of(progress, place * number, len(files) * number),
        )
        for place, (pair, (queries, gallery, dim)) in enumerate(files.items())
    }


def first_results(
    plan: SearchPlan,
    query: Float[Tensor, "query dim"],
    gallery: Float[Tensor, "gallery dim"],
    *,
    progress: Callable[[int], None],
) -> Ranking:
    """Returns the `DEPTH` best gallery items of each query by cosine, but never the whole gallery.

    Ignored items, such as the query itself, are left out.
    """
    k = min(DEPTH, fewest_ranked(plan) - 1)
    if k < 1:
        raise DataError(
            f"A comparison of rankings needs two gallery items or more for each query, but the "
            f"gallery has {len(gallery)}, and some queries may not find all of them. Add items."
        )
    query, gallery = (F.normalize(side.float(), dim=1) for side in (query, gallery))
    places, scores = [], []
    for rows in torch.arange(len(query)).split(rows_per_block(4 * len(gallery), gallery.device)):
        score = query[rows.to(query.device)] @ gallery.T
        if plan.ignored is not None:
            score.masked_fill_(plan.is_ignored(rows).to(score.device), -torch.inf)
        best = best_by_partition(score, k) if score.device.type == "cpu" else best_by_topk(score, k)
        places.append(best.cpu())
        scores.append(score.gather(1, best).cpu())
        progress(int(rows[-1]) + 1)
    return Ranking(torch.cat(places), torch.cat(scores))


def fewest_ranked(plan: SearchPlan) -> int:
    """Smallest number of gallery items that a query may find."""
    hidden = max((len(set(rows)) for rows in plan.ignored or []), default=0)
    return len(plan.gallery_ids) - hidden


def ids_as_text(ids: NDArray[Any]) -> list[str]:
    """Returns ids as a file of pairs names them."""
    return [str(item) for item in ids.tolist()]
