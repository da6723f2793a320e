"""The map in closed form that a head begins with."""

from collections.abc import Iterator

import torch

from nobackfill.adapters import Affine, moments, procrustes_of, ridge_of
from nobackfill.head.examples import Examples
from nobackfill.head.heldout import asked
from nobackfill.head.network import HeadNetwork
from nobackfill.head.progress import Progress

STRENGTHS = (1e-4, 1e-3, 1e-2, 1e-1)
MIDDLING = "ridge 0.001"  # where no held-out classes say which is best


def closed_forms(examples: Examples) -> Iterator[tuple[str, Affine]]:
    """All maps in closed form, by name."""
    known = moments(examples.blocks())
    yield "procrustes", procrustes_of(known).to(torch.float32)
    for strength in STRENGTHS:
        yield f"ridge {strength:g}", ridge_of(known, strength=strength).to(torch.float32)


def choose_closed_form(
    network: HeadNetwork, examples: Examples, held_out: Examples | None
) -> Progress:
    """Lets the network begin with the closed form that is best on the held-out classes.

    Without any, with ridge regression of middling strength.
    """
    progress, found = Progress(), dict(closed_forms(examples))
    for name, affine in found.items():
        network.start_from(affine)
        progress.closed[name] = float("nan") if held_out is None else asked(network, held_out)
    progress.start = MIDDLING
    if held_out is not None:
        progress.start = max(progress.closed, key=lambda name: progress.closed[name])
    network.start_from(found[progress.start])
    return progress
