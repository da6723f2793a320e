"""The modality gap: the distance between images and texts in the embedding space."""

from collections.abc import Mapping
from itertools import combinations
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from nobackfill.errors import DataError
from nobackfill.evaluation.file_columns import rows_of
from nobackfill.evaluation.metrics import unit
from nobackfill.evaluation.search_plan import SearchPlan
from nobackfill.vectors import Vectors
from nobackfill.vectors.ids import Ids, is_in


class Gap(NamedTuple):
    """The gaps between two modalities; None for those that were not measured."""

    first: str  # first modality, such as `image`
    second: str  # second modality, such as `text`
    old: float | None  # gap in the old space
    new: float | None  # gap in the new space
    # gap between new queries of the second and the old gallery of the first
    second_to_first: float | None
    # gap between new queries of the first and the old gallery of the second
    first_to_second: float | None

    @property
    def sentence(self) -> str:
        """The gaps that were measured, in a sentence.

        Example:
            >>> Gap("image", "text", 0.8, 0.6, 0.7, None).sentence
            'The gap between images and texts: 0.800 before, 0.600 after a full backfill; 0.700 ...'
        """
        within = {"before": self.old, "after a full backfill": self.new}
        across = {
            f"from new {self.second}s to old {self.first}s": self.second_to_first,
            f"from new {self.first}s to old {self.second}s": self.first_to_second,
        }
        parts = [
            ", ".join(f"{gap:.3f} {what}" for what, gap in group.items() if gap is not None)
            for group in (within, across)
        ]
        return (
            f"The gap between {self.first}s and {self.second}s: {'; '.join(filter(None, parts))}."
        )


def modality_gap(image: Float[Tensor, "images dim"], text: Float[Tensor, "texts dim"]) -> float:
    r"""Returns the distance between the centroids of two modalities.

    .. math::
        \Bigl\lVert \frac{1}{n} \sum_{i=1}^{n} \frac{u_i}{\lVert u_i \rVert}
        - \frac{1}{m} \sum_{j=1}^{m} \frac{v_j}{\lVert v_j \rVert} \Bigr\rVert

    with the vectors :math:`u_i` of the first and :math:`v_j` of the second. The gap is between 0
    and 2; means are computed in float64. Liang et al., Mind the Gap: Understanding the Modality
    Gap in Multi-modal Contrastive Representation Learning, NeurIPS 2022.

    Example:
        >>> modality_gap(torch.tensor([[2.0, 0.0]]), torch.tensor([[0.0, 1.0], [0.0, 3.0]]))
        1.414...
    """
    if len(image) == 0 or len(text) == 0:
        raise DataError(
            f"a modality gap needs vectors of both modalities, but got {len(image)} and "
            f"{len(text)}. Check the column `modality`."
        )
    centroids = [
        unit(vectors.detach().to(torch.promote_types(vectors.dtype, torch.float32)), name)
        .mean(dim=0, dtype=torch.float64)
        .cpu()
        for vectors, name in ((image, "image"), (text, "text"))
    ]
    return float((centroids[0] - centroids[1]).norm())


def gaps_between(
    plans: Mapping[tuple[str, str], SearchPlan], old: Vectors, new: Vectors, queries: Vectors
) -> tuple[Gap, ...]:
    """Returns the gaps between every two modalities; `queries` are for the old gallery."""
    items: dict[str, Ids] = {}
    for direction, plan in plans.items():
        for modality, ids in zip(direction, (plan.query_ids, plan.gallery_ids), strict=True):
            items[modality] = np.union1d(items.get(modality, ids), ids)

    def across(query: str, gallery: str) -> float | None:
        plan = plans.get((query, gallery))
        return None if plan is None else _gap(queries, plan.query_ids, old, plan.gallery_ids)

    return tuple(
        Gap(
            first,
            second,
            old=_gap(old, items[first], old, items[second]),
            new=_gap(new, items[first], new, items[second]),
            second_to_first=across(second, first),
            first_to_second=across(first, second),
        )
        for first, second in combinations(sorted(items), 2)
    )


def _gap(query: Vectors, query_ids: Ids, gallery: Vectors, gallery_ids: Ids) -> float | None:
    """Returns the gap over the common dimensions of two files; None if a file lacks an item."""
    if not (is_in(query_ids, query.ids).all() and is_in(gallery_ids, gallery.ids).all()):
        return None
    return modality_gap(rows_of(query, query_ids)[:, : gallery.dim], rows_of(gallery, gallery_ids))
