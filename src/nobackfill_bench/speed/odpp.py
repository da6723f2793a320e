"""Fifty steps of ODPP over all pairs, against two products of matrices for each of them."""

from collections.abc import Callable, Sequence
from functools import partial

import torch

from nobackfill.methods.perturbation.crowding import crowding_gradient
from nobackfill.methods.perturbation.odpp import OptimizedPerturbation
from nobackfill_bench.speed.case import Case, Finding, Kind, Pair, Precision, Suite
from nobackfill_bench.speed.inputs import crowded, dense, product_in_blocks

SIZES = (3_997, 24_393, 81_313)
DIM, STEPS, THRESHOLD = 256, 50, 0.6
WORLDS: dict[str, Callable[..., torch.Tensor]] = {"crowded": crowded, "dense": dense}
TARGETS = {24_393: 0.3, 81_313: 4.0}  # seconds, on an H200
ON_CPU = {("crowded", 3_997), ("crowded", 24_393), ("dense", 3_997)}  # others take minutes there
PEER = f"{STEPS} × two products of all with all"


def cases(kind: Kind) -> Sequence[Case | Finding]:
    """Every world and size; an update with both terms; on a CPU also in float64."""
    precisions: tuple[Precision, ...] = ("float32", "tf32") if kind == "cuda" else ("float32",)
    found: list[Case | Finding] = [
        steps_of(world, classes, precision, kind)
        for world in WORLDS
        for classes in SIZES
        for precision in precisions
    ]
    found += [steps_of("crowded", classes, "float32", kind, update=True) for classes in SIZES]
    found += [steps_of("crowded", 24_393, "float64", kind)]
    return [*found, *(error_of_gradient(world) for world in WORLDS if kind == "cuda")]


def steps_of(
    world: str, classes: int, precision: Precision, kind: Kind, *, update: bool = False
) -> Case:
    """The constructor, or an update, which minimises two terms."""
    on_time = kind == "cuda" and not update and precision != "float64"
    terms = 2 if update else 1
    what = "`update`" if update else "constructor"
    return Case(
        f"{what}, {world}, {precision}",
        {"classes": classes, "dim": DIM, "steps": STEPS},
        PEER if not update else f"{STEPS} × four products of all with all",
        partial(_make, world, classes, precision, update),
        target_seconds=TARGETS.get(classes) if on_time else None,
        precision=precision,
        operations=4.0 * terms * STEPS * classes**2 * DIM,
        bytes=4.0 * 6 * STEPS * classes * DIM,
        large=kind == "cpu"
        and (update or precision == "float64" or (world, classes) not in ON_CPU),
    )


def _make(
    world: str, classes: int, precision: Precision, update: bool, device: torch.device
) -> Pair:
    old = _means(world, classes, precision, device, seed=0)
    compared = "tf32" if precision == "tf32" else "float32"  # float64 vectors stay what they are
    made = partial(OptimizedPerturbation, old, steps=STEPS, precision=compared)
    peer = product_in_blocks(old, old, back=True)
    if not update:
        return Pair(made, peer, STEPS)
    perturbation, new = made(), _means(world, classes, precision, device, seed=1)
    return Pair(lambda: perturbation.update(new), peer, 2 * STEPS)


def _means(
    world: str, classes: int, precision: Precision, device: torch.device, *, seed: int
) -> torch.Tensor:
    rows = WORLDS[world](classes, DIM, device, seed=seed)
    return rows.double() if precision == "float64" else rows


def error_of_gradient(world: str, classes: int = 24_393) -> Finding:
    """How far one gradient over all pairs is from that in float64."""

    def error(device: torch.device) -> float:
        x = WORLDS[world](classes, DIM, device)
        double = x.double()
        exact = crowding_gradient(double, double, THRESHOLD)
        wrong = crowding_gradient(x, x, THRESHOLD) - exact
        return float(wrong.norm() / exact.norm())

    return Finding(
        f"error of a gradient, {world}, float32",
        {"classes": classes, "dim": DIM},
        "length of the difference to float64's, over the length of that",
        error,
    )


ODPP = Suite(
    "ODPP: fifty steps over all pairs",
    (
        f"The constructor takes {STEPS} full gradients over all ordered pairs of C class means, D "
        f"= {DIM}; `update` has two terms. Counted for a dense gradient: 2 C² D operations for the "
        "similarities and 2 C² D for the mask times the matrix, in every step; 24 C D bytes a step "
        "for places, gradient and moments. That floor can be undercut where pairs are too far "
        "apart to matter: in `crowded`, class means lie in clusters of twenty, in `dense` all "
        "cosines are about 0.6, the threshold itself, so that every pair matters. The peer is one "
        f"step's products, timed, times {STEPS}; targets are seconds on an H200.",
        "On a GPU float32 runs on tensor cores: similarities as in the section above, the mask as "
        "ones of bfloat16, which are exact, times each number as three of bfloat16. *Error of a "
        "gradient* says what that costs; in `dense` it is nearly all of pairs whose cosine is so "
        "near the threshold that float32 takes them for the other side.",
    ),
    cases,
)
