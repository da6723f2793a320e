"""Exact mAP from vectors, compared with one product on a GPU and with libraries on a CPU."""

from collections.abc import Sequence
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from nobackfill.evaluation.metrics import retrieval
from nobackfill_bench.speed.case import Case, Kind, Pair, Precision, Suite
from nobackfill_bench.speed.inputs import product_in_blocks
from nobackfill_bench.speed.retrieval_peers import PEERS

DIM, RELEVANT = 256, 20
ON_CPU = ((3_368, 15_913, 750, 1.75), (1_129, 200_000, 10_000, 2.1))
ON_GPU = (10_000, 1_000_000, 1_000_000 // RELEVANT, 2.1)  # query, gallery, classes, noise
GPU_TARGET, CPU_GB = 1.5, 0.5
Vectors = tuple[Tensor, Tensor, Tensor, Tensor]  # query, gallery and their labels


def cases(kind: Kind) -> Sequence[Case]:
    """Returns the cases: on a GPU one large gallery; on a CPU two sizes with each peer."""
    if kind == "cuda":
        precisions: tuple[Precision, ...] = ("float32", "tf32")
        query, gallery, classes, noise = ON_GPU
        return [
            whole(query, gallery, DIM, classes, noise, precision, target=GPU_TARGET)
            for precision in precisions
        ]
    return [beside(name, size) for size in ON_CPU for name in PEERS]


def beside(name: str, size: tuple[int, int, int, float]) -> Case:
    """Returns the case of ours and one peer that also computes the mAP."""
    query, gallery, classes, noise = size
    peer = PEERS[name]

    def make(device: torch.device) -> Pair:
        vectors = clustered(query, gallery, DIM, classes, noise, device)
        return Pair(lambda: mean_average_precision(vectors), lambda: peer.function(*vectors))

    return Case(
        f"mAP against {name}",
        {"queries": query, "gallery": gallery, "dim": DIM},
        name,
        make,
        counts="peer/ours",
        target=peer.target,
        target_gb=CPU_GB,
        operations=2.0 * query * gallery * DIM,
        bytes=4.0 * (query + gallery) * DIM,
        requires=peer.requires,
        room=float(peer.room) * query * gallery,
    )


def whole(
    query: int,
    gallery: int,
    dim: int,
    classes: int,
    noise: float,
    precision: Precision,
    *,
    target: float | None = None,
    axis: str = "",
) -> Case:
    """Returns the case of ours and the product of all similarities."""
    return Case(
        f"mAP by {axis}" if axis else f"mAP, {precision}",
        {"queries": query, "gallery": gallery, "dim": dim},
        "all similarities alone, in blocks",
        partial(_make, query, gallery, dim, classes, noise),
        target=target,
        precision=precision,
        operations=2.0 * query * gallery * dim,
        bytes=4.0 * (query + gallery) * dim,
        axis=axis,
    )


def _make(
    query: int, gallery: int, dim: int, classes: int, noise: float, device: torch.device
) -> Pair:
    vectors = clustered(query, gallery, dim, classes, noise, device)
    return Pair(lambda: mean_average_precision(vectors), product_in_blocks(*vectors[:2]))


def mean_average_precision(vectors: Vectors) -> float:
    """Computes the mAP with this package."""
    return retrieval(*vectors).mean_average_precision


def clustered(
    query: int, gallery: int, dim: int, classes: int, noise: float, device: torch.device
) -> Vectors:
    """Returns unit vectors around the centres of their classes, and labels on the CPU."""
    generator = torch.Generator(device).manual_seed(0)
    centre = torch.randn(classes, dim, generator=generator, device=device)
    labels = [torch.arange(rows) % classes for rows in (query, gallery)]
    sides = [
        F.normalize(
            torch.randn(len(label), dim, generator=generator, device=device)
            .mul_(noise)
            .add_(centre[label.to(device)]),
            dim=-1,
        )
        for label in labels
    ]
    return sides[0], sides[1], labels[0], labels[1]


RETRIEVAL = Suite(
    "Mean average precision from vectors",
    (
        f"Exact mAP from unit vectors in memory, D = {DIM}, about {RELEVANT} relevant items per "
        "query. Counted: 2 Q G D operations for the similarities, and 4 (Q + G) D bytes. On a GPU "
        "the lower bound is their product, written in blocks of 1 GB and never read, on vectors "
        "that are already on the GPU; ours also copies labels there, counts the ranks of relevant "
        "items and copies the results to the CPU. On a CPU each peer takes turns with ours in one "
        "process; the ratio is the peer's time divided by ours, and the table shows both values.",
        "Peers: `pip install 'nobackfill[bench]'`. torchmetrics drops scores below 0, so it gets "
        "(1 + cosine) / 2. Other libraries (open-metric-learning, torchreid) pin their own "
        "dependencies: install them in a separate environment and add a function to "
        "`retrieval_peers.py`.",
    ),
    cases,
)
