"""The map in closed form that a head begins with."""

from collections.abc import Iterator

import torch

from nobackfill.head.closed_form import Affine, moments, procrustes_of, ridge_of
from nobackfill.head.examples import Examples
from nobackfill.head.multimodal import ModalityNetwork, Network
from nobackfill.head.schedule_progress import Progress
from nobackfill.head.validation import asked

STRENGTHS = (1e-4, 1e-3, 1e-2, 1e-1)
MIDDLING = "ridge 0.001"  # where no held-out classes say which is best


def closed_forms(
    examples: Examples, *, modality: int | None = None, width: int | None = None
) -> Iterator[tuple[str, Affine]]:
    """All maps in closed form, by name.

    Args:
        examples: What to fit them to.
        modality: The only one that they are fitted to; None for all items.
        width: How many dimensions it has, if not all.
    """
    known = moments((new[:, :width], old) for new, old in examples.blocks(modality))
    yield "procrustes", procrustes_of(known).to(torch.float32)
    for strength in STRENGTHS:
        yield f"ridge {strength:g}", ridge_of(known, strength=strength).to(torch.float32)


def forms_for(network: Network, examples: Examples) -> dict[str, list[Affine]]:
    """All maps in closed form, by name: of each one for each modality, fitted to that alone."""
    if isinstance(network, ModalityNetwork):
        each = [
            dict(closed_forms(examples, modality=modality, width=width))
            for modality, width in enumerate(network.widths)
        ]
    else:
        each = [dict(closed_forms(examples))]
    return {name: [forms[name] for forms in each] for name in each[0]}


def choose_closed_form(network: Network, examples: Examples, held_out: Examples | None) -> Progress:
    """Lets the network begin with the closed form that is best on the held-out classes.

    Without any, with ridge regression of middling strength. Of several modalities all begin with
    the same kind.
    """
    progress, found = Progress(), forms_for(network, examples)
    for name, affines in found.items():
        network.start_from(*affines)
        progress.closed[name] = float("nan") if held_out is None else asked(network, held_out)
    progress.start = MIDDLING
    if held_out is not None:
        progress.start = max(progress.closed, key=lambda name: progress.closed[name])
    network.start_from(*found[progress.start])
    return progress
