"""What is stored of items that are embedded again: more dimensions, mapped or as they are."""

import torch
import torch.nn.functional as F

from nobackfill.head.closed_form import moments
from nobackfill.head.examples import Examples
from nobackfill.head.extra_dims import Extra
from nobackfill.head.multimodal import Network
from nobackfill.head.network import HeadNetwork
from nobackfill.head.validation import asking, mapped, searched

SCALES = (0.5, 0.7, 1.0, 1.4, 2.0)  # of extra dimensions, beside a vector of unit length


def add_extra(
    network: HeadNetwork, examples: Examples, held_out: Examples | None, *, extra: int
) -> dict[float, float]:
    """Puts dimensions behind those of a fitted network, as loud as held-out classes like them.

    Args:
        network: Fitted; its map into the old space stays as it is.
        examples: Of which the directions are taken.
        held_out: Of other classes, on which new vectors search each other; without, each part of a
            vector counts alike.
        extra: How many.

    Returns:
        Of each scale that was tried new/new mAP on the held-out classes.
    """
    more = Extra(examples.new.shape[1], extra).to(examples.old.device)
    more.start_from(moments(examples.blocks()))
    found: dict[float, float] = {}
    if held_out is not None:
        blocks = [new for new, _ in held_out.blocks()]
        own = torch.cat([mapped(network, new) for new in blocks])
        with torch.no_grad():
            behind = torch.cat([more(new) for new in blocks])
        places = asking(held_out)
        for scale in SCALES:
            stored = torch.cat([own, scale * behind], dim=1)
            found[scale] = searched(stored[places], stored, places, held_out)
        more.scale.fill_(max(found, key=lambda scale: found[scale]))
    network.extra = more
    return found


def compare_stored(network: Network, held_out: Examples) -> dict[str, float]:
    """New/new mAP on the held-out classes, where items are embedded again.

    Returns:
        Of "mapped" vectors, and of new vectors "as they are".
    """
    places = asking(held_out)
    as_they_are = torch.cat([new for new, _ in held_out.blocks()])
    vectors = {
        "mapped": mapped(network, as_they_are, held_out.modality),
        "as they are": F.normalize(as_they_are, dim=1),
    }
    return {
        name: searched(stored[places], stored, places, held_out) for name, stored in vectors.items()
    }
