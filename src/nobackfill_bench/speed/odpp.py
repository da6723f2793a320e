"""Fifty steps of ODPP over all pairs, compared with two matrix products per step."""

from collections.abc import Callable, Sequence
from functools import partial

import torch

from nobackfill.methods.perturbation.crowding import crowding_gradient
from nobackfill.methods.perturbation.odpp import OptimizedPerturbation
from nobackfill_bench.speed.case import Case, Finding, Kind, Pair, Precision, Suite
from nobackfill_bench.speed.inputs import crowded, dense, product_in_blocks

SIZES = (3_997, 24_393, 81_313)
MIDDLE = 24_393
DIM, STEPS, THRESHOLD = 256, 50, 0.6
WORLDS: dict[str, Callable[..., torch.Tensor]] = {"crowded": crowded, "dense": dense}
TARGETS = {24_393: 0.3, 81_313: 4.0}  # seconds, on an H200
ON_CPU = {("crowded", 3_997), ("crowded", 24_393), ("dense", 3_997)}  # others take minutes on a CPU
PEER = f"{STEPS} × two products of all with all"


def cases(kind: Kind) -> Sequence[Case | Finding]:
    """Returns the cases of all inputs and sizes, with one and with both terms."""
    precisions: tuple[Precision, ...] = ("float32", "tf32") if kind == "cuda" else ("float32",)
    cases: list[Case | Finding] = [
        steps_of(world, classes, precision, kind)
        for world in WORLDS
        for classes in SIZES
        for precision in precisions
    ]
    cases += [steps_of("crowded", classes, "float32", kind, update=True) for classes in SIZES]
    cases += [steps_of("crowded", MIDDLE, "float64", kind)]
    return [*cases, *(error_of_gradient(world) for world in WORLDS if kind == "cuda")]


def steps_of(
    world: str, classes: int, precision: Precision, kind: Kind, *, update: bool = False
) -> Case:
    """Returns the case of the constructor, or of an update, which minimises two terms."""
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
    compared = "tf32" if precision == "tf32" else "float32"  # float64 vectors stay in float64
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


def error_of_gradient(world: str) -> Finding:
    """Returns the finding of the error of one gradient over all pairs, relative to float64."""

    def error(device: torch.device) -> float:
        x = WORLDS[world](MIDDLE, DIM, device)
        double = x.double()
        exact = crowding_gradient(double, double, THRESHOLD)
        wrong = crowding_gradient(x, x, THRESHOLD) - exact
        return float(wrong.norm() / exact.norm())

    return Finding(
        f"error of a gradient, {world}, float32",
        {"classes": MIDDLE, "dim": DIM},
        "length of the difference to float64's, over the length of that",
        error,
    )


ODPP = Suite(
    "ODPP: fifty steps over all pairs",
    (
        f"The constructor takes {STEPS} full gradients over all ordered pairs of C class means, D "
        f"= {DIM}; `update` has two terms. Counted for a dense gradient, in every step: 2 C² D "
        "operations for the similarities, 2 C² D for the mask times the matrix, and 24 C D bytes "
        "for positions, gradient and moments. Ours can be faster if many pairs are too far apart "
        "to contribute. In `crowded`, class means form clusters of twenty; in `dense`, all cosines "
        "are about 0.6, which is the threshold, so every pair contributes. The peer is the time "
        f"of one step's products, times {STEPS}. Targets are seconds on an H200.",
        "On a GPU float32 runs on tensor cores: the similarities as in the section above; the mask "
        "in bfloat16, which is exact, times each number as three bfloat16 numbers. *Error of a "
        "gradient* shows the cost. In `dense` nearly all of it comes from pairs whose cosine is so "
        "close to the threshold that float32 puts them on the other side.",
    ),
    cases,
)
