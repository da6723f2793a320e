"""What held-out classes say of a network: how well its queries find their like."""

from itertools import product

import torch
from jaxtyping import Float, Int
from torch import Tensor

from nobackfill.evaluation.metrics import retrieval
from nobackfill.head.examples import Examples
from nobackfill.head.multimodal import Network

QUERIES = 2000  # that are asked, of each modality


@torch.no_grad()
def mapped(
    network: Network,
    new: Float[Tensor, "rows new_dim"],
    modality: Int[Tensor, " rows"] | None = None,
    *,
    block: int = 65_536,
) -> Float[Tensor, "rows dim"]:
    """What the network makes of vectors, some rows at a time; without dropout."""
    was_training = network.training
    network.eval()
    given = (new,) if modality is None else (new, modality)
    parts = [
        network.embed(*some) for some in zip(*(one.split(block) for one in given), strict=True)
    ]
    network.train(was_training)
    return torch.cat(parts)


def asked(network: Network, held_out: Examples) -> float:
    """New/old mAP of the network on the held-out classes; NaN where training has diverged."""
    places = asking(held_out)
    query = mapped(network, *held_out.given(places))
    return cross_map(query, places, held_out) if query.isfinite().all() else float("nan")


def asking(held_out: Examples) -> Int[Tensor, " query"]:
    """The places of the items that ask: all, or some thousand of a modality, evenly chosen."""
    if held_out.modality is None:
        return evenly(torch.arange(len(held_out), device=held_out.old.device))
    codes = held_out.modality
    chosen = [evenly((codes == one).nonzero().flatten()) for one in codes.unique()]
    return torch.cat(chosen).sort().values


def evenly(places: Int[Tensor, " some"]) -> Int[Tensor, " query"]:
    """All places, or `QUERIES` of them, evenly chosen."""
    number = len(places)
    if number <= QUERIES:
        return places
    return places[torch.arange(QUERIES, device=places.device) * number // QUERIES]


def cross_map(
    query: Float[Tensor, "query old_dim"], places: Int[Tensor, " query"], held_out: Examples
) -> float:
    """The mAP of mapped new vectors on the old ones, each item asking for the others.

    Args:
        query: The mapped vectors of the items that ask.
        places: Theirs among all.
        held_out: All.
    """
    return searched(query, held_out.old.float(), places, held_out)


def searched(
    query: Float[Tensor, "query dim"],
    gallery: Float[Tensor, "items dim"],
    places: Int[Tensor, " query"],
    held_out: Examples,
) -> float:
    r"""The mAP of some items' queries on all items but themselves.

    Of several modalities, the mean over directions, as the gap between them would rule one search:

    .. math::
        \frac{1}{|D|} \sum_{(a, b) \in D} \mathrm{mAP}_{a \to b}

    where queries of the modality `a` search items of `b` alone, and :math:`D` are all such pairs
    in which some query can find something, the same modality twice among them.

    Args:
        query: The vectors of the items that ask.
        gallery: What is searched: the vectors of all items.
        places: Of the items that ask among all.
        held_out: All.
    """
    if held_out.modality is None:
        everywhere = torch.arange(len(gallery), device=places.device)
        return one_way(query, gallery, places, everywhere, held_out)
    asks, found = held_out.modality[places], []
    for one, other in product(asks.unique(), held_out.modality.unique()):
        some, rows = asks == one, (held_out.modality == other).nonzero().flatten()
        found.append(one_way(query[some], gallery[rows], places[some], rows, held_out))
    return torch.tensor(found, dtype=torch.float64).nanmean().item()


def one_way(
    query: Float[Tensor, "query dim"],
    gallery: Float[Tensor, "searched dim"],
    places: Int[Tensor, " query"],
    rows: Int[Tensor, " searched"],
    held_out: Examples,
) -> float:
    """The mAP of some items' queries on others, never themselves; NaN if none can find any.

    Args:
        query: The vectors of the items that ask.
        gallery: Those of the items that are searched.
        places: Of the items that ask among all.
        rows: The places of those that are searched.
        held_out: All.
    """
    assert held_out.classes is not None
    own = {row: place for place, row in enumerate(rows.tolist())}
    found = retrieval(
        query,
        gallery,
        held_out.classes[places].cpu(),
        held_out.classes[rows].cpu(),
        ignored=[[own[place]] if place in own else [] for place in places.tolist()],
    )
    return found.mean_average_precision
