"""One update of NDPP, compared with the product of all similarities alone."""

import importlib
from collections.abc import Sequence
from functools import partial

import torch
import torch.nn.functional as F

from nobackfill.methods.perturbation.ndpp import NeighborPerturbation, repulsion
from nobackfill.ops.matmul import products_with
from nobackfill.ops.nearest import nearest
from nobackfill_bench.speed.case import Case, Finding, Kind, Pair, Precision, Suite, Work
from nobackfill_bench.speed.inputs import crowded, product_in_blocks, replayed

SIZES = (3_997, 24_393, 81_313, 300_000)
MIDDLE = 24_393
DIM, NEIGHBORS, SAMPLE = 256, 100, 512
FASTEST_ON_CPU = 24_393  # classes; more take minutes on a CPU
TARGETS: dict[Kind, tuple[float, float]] = {"cuda": (2.0, 8.0), "cpu": (1.3, 4.0)}  # ratio, GB
GEMM = "all similarities alone, in blocks"
FAISS = "`IndexFlatIP.search` of faiss, k=100"


def cases(kind: Kind) -> Sequence[Case | Finding]:
    """Returns the cases of all sizes and precisions; on a CPU only float32."""
    every: tuple[Precision, ...] = ("float32", "tf32", "bfloat16")
    precisions = every if kind == "cuda" else every[:1]
    cases: list[Case | Finding] = [
        update(classes, DIM, precision, kind) for classes in SIZES for precision in precisions
    ]
    if kind == "cuda":
        cases += [update(SIZES[0], DIM, precision, kind, recorded=True) for precision in every]
    cases += [update(MIDDLE, DIM, "float64", kind), constructor(MIDDLE, DIM, kind)]
    cases += [
        aligned_product(classes, DIM, precision, kind)
        for classes in SIZES[1:3]
        for precision in precisions
    ]
    if kind == "cuda":
        cases += [
            error_of_cosines(MIDDLE, dim, by_torch=by_torch)
            for dim in (16, DIM, 2_048)
            for by_torch in (False, True)
        ]
    return cases + [
        neighbors_found(classes, DIM, precision)
        for classes in (MIDDLE, *([81_313] if kind == "cuda" else []))
        for precision in every
        if kind == "cuda" or precision != "tf32"
    ]


def update(
    classes: int,
    dim: int,
    precision: Precision,
    kind: Kind,
    *,
    axis: str = "",
    name: str = "",
    recorded: bool = False,
) -> Case:
    """Returns the case of one update, optionally recorded; with an `axis` it has no targets."""
    by_faiss = kind == "cpu" and precision == "float32" and not axis
    return Case(
        name or f"`update`, {precision}{', recorded' if recorded else ''}",
        {"classes": classes, "dim": dim},
        FAISS if by_faiss else GEMM,
        partial(_make, classes, dim, precision, by_faiss=by_faiss, recorded=recorded),
        target=None if axis or precision == "float64" else TARGETS[kind][0],
        target_gb=None if axis or precision == "float64" else TARGETS[kind][1],
        precision=precision,
        operations=2.0 * classes * dim * (classes + NEIGHBORS),
        bytes=4.0 * 4 * classes * dim,  # old, new and moved are read, moved is written
        requires=("faiss",) if by_faiss else (),
        large=kind == "cpu" and not axis and (classes > FASTEST_ON_CPU or precision == "float64"),
        axis=axis,
    )


def aligned_product(classes: int, dim: int, precision: Precision, kind: Kind) -> Case:
    """Returns the case of the product alone, aligned as in ours."""

    def make(device: torch.device) -> Pair:
        old, new = (crowded(classes, dim, device, seed=seed) for seed in range(2))
        if precision == "bfloat16":
            old, new = old.bfloat16(), new.bfloat16()
        return Pair(product_in_blocks(old, new, aligned=True), product_in_blocks(old, new))

    return Case(
        f"similarities alone, aligned, {precision}",
        {"classes": classes, "dim": dim},
        GEMM,
        make,
        precision=precision,
        operations=2.0 * classes**2 * dim,
        bytes=4.0 * 2 * classes * dim,
        large=kind == "cpu" and classes > FASTEST_ON_CPU,
    )


def constructor(classes: int, dim: int, kind: Kind) -> Case:
    """Returns the case of the constructor, which uses the old neighbours."""

    def make(device: torch.device) -> Pair:
        old = crowded(classes, dim, device)
        return Pair(lambda: NeighborPerturbation(old), product_in_blocks(old, old))

    return Case(
        "constructor, float32",
        {"classes": classes, "dim": dim},
        GEMM,
        make,
        operations=2.0 * classes * dim * (classes + NEIGHBORS),
        bytes=4.0 * 3 * classes * dim,
        large=kind == "cpu",
    )


def neighbors_found(classes: int, dim: int, precision: Precision) -> Finding:
    """Returns the finding of the share of neighbours that float64 finds too."""
    return Finding(
        f"neighbours found, {precision}",
        {"classes": classes, "dim": dim},
        f"share of the {NEIGHBORS} nearest that float64 finds too, of {SAMPLE} classes",
        partial(agreement, classes, dim, precision),
        precision=precision,
    )


def agreement(classes: int, dim: int, precision: Precision, device: torch.device) -> float:
    """Computes the share of the neighbours of a sample of classes that float64 finds too."""
    new = crowded(classes, dim, device, seed=1)
    step = max(1, classes // SAMPLE)
    old = crowded(classes, dim, device)[::step][:SAMPLE]
    k = min(NEIGHBORS, classes)
    exact = (old.double() @ new.double().T).topk(k, dim=1).indices
    neighbours, _ = nearest(old, new, k, precision=precision)
    shared = [
        len(set(a) & set(b)) for a, b in zip(neighbours.tolist(), exact.tolist(), strict=True)
    ]
    return sum(shared) / (k * len(shared))


def error_of_cosines(classes: int, dim: int, *, by_torch: bool) -> Finding:
    """Returns the finding of the error of float32 cosines, by ours or by `torch.mm`."""

    def error(device: torch.device) -> float:
        new = crowded(classes, dim, device, seed=1)
        old = crowded(classes, dim, device)[:SAMPLE]
        exact = old.double() @ new.double().T
        products = old @ new.T if by_torch else products_with(new, SAMPLE, SAMPLE)(old)
        return (products.double() - exact).square().mean().sqrt().item()

    return Finding(
        f"error of cosines, float32, {'`torch.mm`' if by_torch else 'ours'}",
        {"classes": classes, "dim": dim},
        f"root of the mean square of the difference to float64, of {SAMPLE} classes with all",
        error,
    )


def _make(
    classes: int,
    dim: int,
    precision: Precision,
    device: torch.device,
    *,
    by_faiss: bool,
    recorded: bool,
) -> Pair:
    old, new = (crowded(classes, dim, device, seed=seed) for seed in range(2))
    if precision == "float64":
        old, new = old.double(), new.double()
        perturbation = NeighborPerturbation(old)
    else:
        perturbation = NeighborPerturbation(old, precision=precision)
    if by_faiss:
        peer = _faiss_search(old, new)
    elif precision == "bfloat16":
        peer = product_in_blocks(old.bfloat16(), new.bfloat16())
    else:
        peer = product_in_blocks(old, new)
    if recorded:
        return Pair(replayed(_without_check(old, new, precision)), replayed(peer))
    return Pair(lambda: perturbation.update(new), peer)


def _without_check(old: torch.Tensor, new: torch.Tensor, precision: Precision) -> Work:
    """Returns an update without the check that the new class means are finite."""
    unit = F.normalize(new, dim=-1)
    push = partial(repulsion, old, old, unit, k=NEIGHBORS, precision=precision, unit=True)
    return lambda: old.add(push(), alpha=0.01)


def _faiss_search(old: torch.Tensor, new: torch.Tensor) -> Work:
    faiss = importlib.import_module("faiss")
    faiss.omp_set_num_threads(torch.get_num_threads())
    index = faiss.IndexFlatIP(new.shape[1])
    index.add(new.numpy())
    rows = old.numpy()
    return lambda: index.search(rows, NEIGHBORS)


NDPP = Suite(
    "NDPP: one update",
    (
        f"Each of C old class means is pushed away from its {NEIGHBORS} nearest new ones, D = "
        f"{DIM}. Counted: 2 C² D operations for the similarities and 2 C k D for the weighted "
        "sums; 16 C D bytes, if every matrix is read once. No method that uses all similarities "
        "can be faster than their product. The lower bound is this product, written in blocks (of "
        "1 GB on a GPU) and never read. The perturbation also selects from C² numbers. On a GPU "
        "ours computes float32 as six bfloat16 products on tensor cores, which is as exact at 256 "
        "dimensions and less exact at 2,048 (*error of cosines*). It can therefore be faster than "
        "the lower bound, which is a plain `torch.mm`. In TF32 and bfloat16 ours pads the number "
        "of classes for tensor cores and starts rows at cache lines; if TF32 is allowed, it "
        "multiplies in float16, which keeps as many bits of a unit vector. *Similarities alone, "
        "aligned* shows the effect of alignment; relative to it, ours has the quotient of both "
        "ratios. At 3,997 classes, launching four kernels and checking that the new class means "
        "are finite takes Python longer than the GPU works; *recorded* measures both as CUDA "
        "graphs, without the check.",
        "*Neighbours found* shows the cost of a precision. Vectors are rounded before the product "
        "(tf32 keeps 10 bits of the mantissa, bfloat16 7); sums are in float32, also for the peer. "
        "The neighbours that change have nearly equal similarities.",
    ),
    cases,
)
