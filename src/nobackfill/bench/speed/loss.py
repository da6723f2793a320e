"""`prototype_loss`, forward and backward, against its two products of matrices."""

from collections.abc import Sequence
from functools import partial

import torch
import torch.nn.functional as F

from nobackfill.bench.speed.case import Case, Kind, Pair, Precision, Suite
from nobackfill.bench.speed.inputs import accepted, crowded, product_in_blocks, replayed
from nobackfill.losses import prototype_loss

BATCHES, CLASSES, DIM = (256, 1_024, 4_096), (24_393, 81_313, 1_000_000), 256
ON_CPU = {(256, 24_393), (1_024, 24_393), (256, 81_313)}
TARGET = 1.3
PEER = "the two products alone"
MANY = 10**8  # products of a batch with all classes, below which a GPU waits for its next order


def cases(kind: Kind) -> Sequence[Case]:
    """Every batch and number of classes."""
    precisions: tuple[Precision, ...] = ("float32", "tf32") if kind == "cuda" else ("float32",)
    return [
        both_ways(batch, classes, DIM, precision, kind, recorded=recorded)
        for recorded in ((False, True) if kind == "cuda" else (False,))
        for classes in CLASSES
        for batch in BATCHES
        for precision in precisions
        if not recorded or batch * classes < MANY
    ]


def both_ways(
    batch: int,
    classes: int,
    dim: int,
    precision: Precision,
    kind: Kind,
    *,
    axis: str = "",
    recorded: bool = False,
) -> Case:
    """Forward and backward; maybe both recorded, as a training that records its steps has them."""
    how = f"{precision}, recorded" if recorded else precision
    return Case(
        f"`prototype_loss` by {axis}" if axis else f"forward + backward, {how}",
        {"batch": batch, "classes": classes, "dim": dim},
        PEER,
        partial(_make, batch, classes, dim, precision, recorded),
        target=None if axis else TARGET,
        precision=precision,
        operations=4.0 * batch * classes * dim,
        bytes=4.0 * (classes * dim + 4 * batch * dim),  # the batch, its own means, its gradient
        room=6 * 4.0 * batch * classes + 3 * 4.0 * classes * dim,
        large=kind == "cpu" and not axis and (batch, classes) not in ON_CPU,
        axis=axis,
    )


def _make(
    batch: int, classes: int, dim: int, precision: Precision, recorded: bool, device: torch.device
) -> Pair:
    old = crowded(classes, dim, device)
    moved = old + 0.01
    generator = torch.Generator(device).manual_seed(1)
    labels = torch.randint(classes, (batch,), generator=generator, device=device)
    noise = torch.randn(batch, dim, generator=generator, device=device) / dim**0.5
    new = (old[labels] + noise).requires_grad_()
    options = accepted(prototype_loss, precision=precision)

    def ours() -> None:
        new.grad = None
        prototype_loss(new, labels, moved, old, **options).backward()

    unit = F.normalize(new.detach(), dim=-1)
    whole = batch * classes * old.element_size()  # one block: the matrix of all cosines
    peer = product_in_blocks(unit, old, back=True, block_bytes=whole)
    return Pair(replayed(ours), replayed(peer)) if recorded else Pair(ours, peer)


LOSS = Suite(
    "`prototype_loss`, forward and backward",
    (
        f"Cosines of a batch of B with C class means, D = {DIM}, their softmax, and its gradient. "
        "Counted: 2 B C D operations forward and 2 B C D backward (old class means have no "
        "gradient), and at least 4 C D bytes. The floor is both products, with the B × C matrix "
        "between them written and read; a loss that never holds that matrix may go below it. "
        "Lengths of the class means are taken in every call. Small sizes take a GPU less time "
        "than it takes Python to ask for ten kernels and autograd to come back; *recorded* are "
        "both as CUDA graphs, as in `CompatibleHead`.",
    ),
    cases,
)
