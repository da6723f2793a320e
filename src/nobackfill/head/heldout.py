"""What held-out classes say of a network: how well its queries find their like."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from nobackfill.head.examples import Examples
from nobackfill.head.network import HeadNetwork
from nobackfill.metrics import retrieval

QUERIES = 2000  # that are asked


@torch.no_grad()
def mapped(
    network: HeadNetwork, new: Float[Tensor, "rows new_dim"], *, block: int = 65_536
) -> Float[Tensor, "rows dim"]:
    """What the network makes of vectors, some rows at a time; without dropout."""
    was_training = network.training
    network.eval()
    parts = [network.embed(part) for part in new.split(block)]
    network.train(was_training)
    return torch.cat(parts)


def asked(network: HeadNetwork, held_out: Examples) -> float:
    """New/old mAP of the network on the held-out classes; NaN where training has diverged."""
    places = asking(held_out)
    query = mapped(network, held_out.new_of(places))
    return cross_map(query, places, held_out) if query.isfinite().all() else float("nan")


def asking(held_out: Examples) -> Int[Tensor, " query"]:
    """The places of the items that ask: all, or some thousand of them, evenly chosen."""
    device, number = held_out.old.device, len(held_out)
    if number <= QUERIES:
        return torch.arange(number, device=device)
    return torch.arange(QUERIES, device=device) * number // QUERIES


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
    """The mAP of some items' queries on all items but themselves."""
    assert held_out.classes is not None
    found = retrieval(
        query,
        gallery,
        held_out.classes[places].cpu(),
        held_out.classes.cpu(),
        ignored=[[place] for place in places.tolist()],
    )
    return found.mean_average_precision
