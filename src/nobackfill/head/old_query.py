"""Queries of both models: a weighted sum of the old vector and the mapped new vector."""

from math import isnan

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from nobackfill.evaluation.metrics import retrieval
from nobackfill.head.examples import Examples
from nobackfill.head.network import Network
from nobackfill.head.validation import choose_queries, embed_rows, retrieval_map

WEIGHTS = tuple(tenth / 10 for tenth in range(11))  # of the old vector; 1 is the old model alone


def add_old(
    mapped: Float[Tensor, "query dim"], old: Float[Tensor, "query dim"], weight: float
) -> Float[Tensor, "query dim"]:
    r"""Returns the queries of both models.

    .. math::
        q = \frac{a\, \hat o + (1 - a)\, \hat m}{\lVert a\, \hat o + (1 - a)\, \hat m \rVert}

    with the old vector :math:`o` of each query, its mapped new vector :math:`m`, both made unit,
    and the weight :math:`a`. The sum is one vector of the old space, so one search suffices.

    Example:
        >>> add_old(torch.tensor([[2.0, 0.0]]), torch.tensor([[0.0, 3.0]]), 0.5)
        tensor([[0.7071, 0.7071]])
    """
    both = weight * F.normalize(old, dim=1) + (1 - weight) * F.normalize(mapped, dim=1)
    return F.normalize(both, dim=1)


@torch.no_grad()
def weigh_old(network: Network, held_out: Examples) -> dict[float, float]:
    """Returns the new/old mAP on the held-out classes for each weight of the old vector.

    Weight 1 is the mAP of the old model. NaN for a network that diverged.
    """
    places = choose_queries(held_out)
    mapped = embed_rows(network, *held_out.network_inputs(places))
    old = held_out.old.float()
    return {
        weight: retrieval_map(add_old(mapped, old[places], weight), old, places, held_out)
        for weight in WEIGHTS
    }


def best_weight(values: dict[float, float]) -> float:
    """Returns the weight with the highest mAP; of equal ones the one nearest to the old model.

    Example:
        >>> best_weight({0.0: 0.3, 0.5: 0.4, 1.0: 0.4})
        1.0
    """
    return max(
        values, key=lambda weight: (-1.0 if isnan(values[weight]) else values[weight], weight)
    )


def choose_weight(
    old_query: Float[Tensor, "query dim"],
    new_query: Float[Tensor, "query dim"],
    old_gallery: Float[Tensor, "gallery dim"],
    query_labels: Int[Tensor, " query"],
    gallery_labels: Int[Tensor, " gallery"],
    *,
    exclude_self: bool = False,
) -> float:
    """Returns the weight of the old vector with the highest mAP in the old gallery.

    Choose it on items that neither training nor the report uses.

    Args:
        old_query: Old vector of each query.
        new_query: New vector of each query, mapped if the method maps queries.
        old_gallery: Old vector of each gallery item.
        query_labels: Class of each query.
        gallery_labels: Class of each gallery item.
        exclude_self: Whether query `i` ignores gallery item `i`.
    """
    values = {
        weight: retrieval(
            add_old(new_query, old_query, weight),
            old_gallery,
            query_labels,
            gallery_labels,
            exclude_self=exclude_self,
        ).mean_average_precision
        for weight in WEIGHTS
    }
    return best_weight(values)
