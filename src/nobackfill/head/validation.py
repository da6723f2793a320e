"""Measures a network on held-out classes."""

from itertools import product

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from nobackfill.evaluation.metrics import retrieval
from nobackfill.head.examples import Examples
from nobackfill.head.network import Network
from nobackfill.models.evaluating import evaluating

BLOCK = 65_536  # rows per block
QUERIES = 2000  # largest number of queries per modality


def embed_rows(
    network: Network,
    new: Float[Tensor, "rows new_dim"],
    modality: Int[Tensor, " rows"] | None = None,
) -> Float[Tensor, "rows dim"]:
    """Embeds vectors block by block on the device of the network, without dropout.

    The result is where the vectors are.
    """
    device = next(network.parameters()).device
    extra = 0 if network.extra is None else network.extra.linear.out_features
    out = torch.empty(len(new), network.old_dim + extra, device=new.device)
    with evaluating(network):
        for first in range(0, len(new), BLOCK):
            rows = slice(first, first + BLOCK)
            kinds = None if modality is None else modality[rows].to(device)
            out[rows] = network.embed(new[rows].to(device, torch.float32), kinds)
    return out


def new_old_map(network: Network, held_out: Examples) -> float:
    """Returns the new/old mAP on the held-out classes; NaN if training has diverged."""
    places = choose_queries(held_out)
    query = embed_rows(network, *held_out.network_inputs(places))
    if not query.isfinite().all():
        return float("nan")
    return retrieval_map(query, held_out.old.float(), places, held_out)


def old_old_map(held_out: Examples) -> float:
    """Returns the old/old mAP on the held-out classes: that of the old model."""
    places, old = choose_queries(held_out), held_out.old.float()
    return retrieval_map(old[places], old, places, held_out)


def differences_to_old(
    network: Network, held_out: Examples
) -> tuple[Float[Tensor, " queries"], Int[Tensor, " queries"]]:
    """Returns how far each query of a network is above that of the old model, and its class.

    The difference is one of average precision. A query counts once for each direction.
    """
    places, old = choose_queries(held_out), held_out.old.float()
    query = embed_rows(network, *held_out.network_inputs(places))[:, : network.old_dim]
    classes = held_out.classes
    assert classes is not None
    after, before = (
        average_precisions(side, old, places, held_out) for side in (query, old[places])
    )
    changes = [(new - own, rows) for (new, rows), (own, _) in zip(after, before, strict=True)]
    groups = [classes[rows] for _, rows in changes]
    return torch.cat([change for change, _ in changes]), torch.cat(groups).cpu()


def compare_stored(network: Network, held_out: Examples) -> dict[str, float]:
    """Compares two ways to store re-embedded items by new/new mAP on the held-out classes.

    Returns:
        mAP of "mapped" vectors, and of new vectors "as they are".
    """
    places = choose_queries(held_out)
    new = torch.cat([new for new, _ in held_out.blocks()])
    vectors = {
        "mapped": embed_rows(network, new, held_out.modality),
        "as they are": F.normalize(new, dim=1),
    }
    return {
        name: retrieval_map(stored[places], stored, places, held_out)
        for name, stored in vectors.items()
    }


def choose_queries(held_out: Examples) -> Int[Tensor, " query"]:
    """Returns the positions of the query items: at most `QUERIES` of a modality, evenly spaced."""
    queries, numbers = [], held_out.modality_numbers
    for number in numbers.unique():
        places = (numbers == number).nonzero().flatten()
        if len(places) > QUERIES:
            even = torch.arange(QUERIES, device=places.device) * len(places) // QUERIES
            places = places[even]
        queries.append(places)
    return torch.cat(queries).sort().values


def retrieval_map(
    query: Float[Tensor, "query dim"],
    gallery: Float[Tensor, "items dim"],
    places: Int[Tensor, " query"],
    held_out: Examples,
) -> float:
    r"""Returns the mAP of queries over all other items.

    With several modalities it is the mean over directions, because the gap between modalities
    would dominate a joint search:

    .. math::
        \frac{1}{|D|} \sum_{(a, b) \in D} \mathrm{mAP}_{a \to b}

    Queries of the modality `a` search items of `b` alone. :math:`D` contains every pair, also
    :math:`a = b`, in which a query has something to find.
    """
    directions = average_precisions(query, gallery, places, held_out)
    return torch.stack([values.nanmean() for values, _ in directions]).nanmean().item()


def average_precisions(
    query: Float[Tensor, "query dim"],
    gallery: Float[Tensor, "items dim"],
    places: Int[Tensor, " query"],
    held_out: Examples,
) -> list[tuple[Tensor, Tensor]]:
    """Returns the average precisions of each direction, and the places of their queries.

    For the directions see `retrieval_map`. NaN for a query that has nothing to find.
    """
    classes, modality, values = held_out.classes, held_out.modality_numbers, []
    assert classes is not None
    for source, target in product(modality[places].unique(), modality.unique()):
        is_query, rows = modality[places] == source, (modality == target).nonzero().flatten()
        query_places = places[is_query]
        # An item must not find itself.
        row_of = {place: row for row, place in enumerate(rows.tolist())}
        own_rows = [[row_of[place]] if place in row_of else [] for place in query_places.tolist()]
        result = retrieval(
            query[is_query],
            gallery[rows],
            classes[query_places].cpu(),
            classes[rows].cpu(),
            ignored=own_rows,
        )
        values.append((result.average_precision, query_places))
    return values
