"""`prototype_loss`, forward and backward, compared with its two matrix products."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from unittest.mock import patch

import torch
import torch.nn.functional as F
from torch import Tensor

from nobackfill.methods.losses import prototype_loss
from nobackfill.ops import softmax_contrast
from nobackfill.ops.softmax_contrast import loss_and_gradient
from nobackfill_bench.speed.case import Case, Finding, Kind, Pair, Precision, Suite
from nobackfill_bench.speed.inputs import crowded, product_in_blocks, replayed

BATCHES, CLASSES, DIM = (256, 1_024, 4_096), (24_393, 81_313, 1_000_000), 256
ON_CPU = {(256, 24_393), (1_024, 24_393), (256, 81_313)}
TARGET = 1.3
PEER = "the two products alone"
MANY = 10**8  # entries of batch x classes; below, a GPU waits for launches


def cases(kind: Kind) -> Sequence[Case | Finding]:
    """Returns the cases of all batches and numbers of classes; on a GPU also the errors."""
    precisions: tuple[Precision, ...] = ("float32", "tf32") if kind == "cuda" else ("float32",)
    cases: list[Case | Finding] = [
        both_ways(batch, classes, DIM, precision, kind, recorded=recorded)
        for recorded in ((False, True) if kind == "cuda" else (False,))
        for classes in CLASSES
        for batch in BATCHES
        for precision in precisions
        if not recorded or batch * classes < MANY
    ]
    if kind == "cuda":
        cases += [
            error_of_gradient(precision, by_torch=by_torch)
            for precision in precisions
            for by_torch in (False, True)
        ]
    return cases


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
    """Returns the case of forward and backward, optionally recorded as CUDA graphs."""
    how = f"{precision}, recorded" if recorded else precision
    return Case(
        f"`prototype_loss` by {axis}" if axis else f"forward + backward, {how}",
        {"batch": batch, "classes": classes, "dim": dim},
        PEER,
        partial(_make, batch, classes, dim, recorded),
        target=None if axis else TARGET,
        precision=precision,
        operations=4.0 * batch * classes * dim,
        bytes=4.0 * (classes * dim + 4 * batch * dim),  # the batch, its own means, its gradient
        room=6 * 4.0 * batch * classes + 3 * 4.0 * classes * dim,
        large=kind == "cpu" and not axis and (batch, classes) not in ON_CPU,
        axis=axis,
    )


def error_of_gradient(precision: Precision, *, by_torch: bool) -> Finding:
    """Returns the finding of the gradient's error relative to float64, by ours or `torch.mm`."""
    batch, classes = BATCHES[0], CLASSES[0]

    def error(device: torch.device) -> float:
        new, labels, moved, old = _inputs(batch, classes, DIM, device)
        positives = moved[labels][None]
        with without_kernels() if by_torch else nullcontext():
            _, measured = loss_and_gradient(new, labels, positives, old, 0.07, gradient=True)
        double = new.double(), labels, positives.double(), old.double(), 0.07
        _, exact = loss_and_gradient(*double, gradient=True)
        assert measured is not None
        assert exact is not None
        share: Tensor = (measured.double() - exact).norm() / exact.norm()
        return share.item()

    return Finding(
        f"error of the gradient, {precision}, {'`torch.mm`' if by_torch else 'ours'}",
        {"batch": batch, "classes": classes, "dim": DIM},
        "norm of the difference to float64, of the norm of the gradient",
        error,
        precision=precision,
    )


def without_kernels() -> AbstractContextManager[object]:
    """Computes the loss with torch alone."""
    return patch.object(softmax_contrast, "usable", lambda x: False)


def _inputs(
    batch: int, classes: int, dim: int, device: torch.device
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Returns embeddings near their class means, labels, moved and old class means."""
    old = crowded(classes, dim, device)
    generator = torch.Generator(device).manual_seed(1)
    labels = torch.randint(classes, (batch,), generator=generator, device=device)
    noise = torch.randn(batch, dim, generator=generator, device=device) / dim**0.5
    return old[labels] + noise, labels, old + 0.01, old


def _make(batch: int, classes: int, dim: int, recorded: bool, device: torch.device) -> Pair:
    new, labels, moved, old = _inputs(batch, classes, dim, device)
    new.requires_grad_()

    def ours() -> None:
        new.grad = None
        prototype_loss(new, labels, moved, old).backward()

    unit = F.normalize(new.detach(), dim=-1)
    whole = batch * classes * old.element_size()  # one block: the matrix of all cosines
    peer = product_in_blocks(unit, old, back=True, block_bytes=whole)
    return Pair(replayed(ours), replayed(peer)) if recorded else Pair(ours, peer)


LOSS = Suite(
    "`prototype_loss`, forward and backward",
    (
        f"Cosines of a batch of B with C class means, D = {DIM}, their softmax, and its gradient. "
        "Counted: 2 B C D operations forward and 2 B C D backward (old class means have no "
        "gradient), and at least 4 C D bytes. The lower bound is both products, with the B × C "
        "matrix between them written and read; a loss that never holds that matrix may be faster. "
        "Every call computes the lengths of the class means. If TF32 is allowed, ours is such a "
        "loss: one kernel similar to flash attention, on float16 factors, which keep as many bits "
        "of unit vectors as TF32 (*error of the gradient*). At small sizes a GPU needs less time "
        "than Python needs to launch the kernels and autograd to return; *recorded* measures both "
        "as CUDA graphs, as in `CompatibleHead`. Without recording, the speed of the host's Python "
        "decides, so these ratios differ between machines with the same GPU.",
    ),
    cases,
)
