"""Growth of time and memory with classes, gallery and dimension."""

from collections.abc import Sequence

from nobackfill_bench.speed.case import Case, Kind, Suite
from nobackfill_bench.speed.loss import both_ways
from nobackfill_bench.speed.ndpp import update
from nobackfill_bench.speed.retrieval import RELEVANT, whole

DIM, NOISE = 256, 2.1
CLASSES: dict[Kind, tuple[int, ...]] = {
    "cuda": (300, 1_000, 3_000, 10_000, 30_000, 100_000, 300_000),
    "cpu": (30, 100, 300, 1_000, 3_000, 10_000, 30_000),
}
GALLERIES: dict[Kind, tuple[int, ...]] = {
    "cuda": (1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000, 3_000_000),
    "cpu": (300, 1_000, 3_000, 10_000, 30_000, 100_000, 300_000),
}
DIMS: dict[Kind, tuple[int, ...]] = {
    "cuda": (16, 32, 64, 128, 256, 512, 1_024, 2_048),
    "cpu": (16, 32, 64, 128, 256, 512, 1_024, 2_048),
}
QUERIES: dict[Kind, int] = {"cuda": 1_000, "cpu": 100}
BATCH: dict[Kind, int] = {"cuda": 1_024, "cpu": 256}
AT: dict[Kind, tuple[int, int]] = {"cuda": (24_393, 300_000), "cpu": (3_997, 30_000)}


def cases(kind: Kind) -> Sequence[Case]:
    """Returns the cases of all curves."""
    classes_at, gallery_at = AT[kind]
    batch, queries = BATCH[kind], QUERIES[kind]

    def searched(gallery: int, dim: int, axis: str) -> Case:
        classes = max(1, gallery // RELEVANT)
        return whole(queries, gallery, dim, classes, NOISE, "float32", axis=axis)

    def pushed(classes: int, dim: int, axis: str) -> Case:
        return update(classes, dim, "float32", kind, axis=axis, name=f"NDPP `update` by {axis}")

    return [
        *(pushed(number, DIM, "classes") for number in CLASSES[kind]),
        *(
            both_ways(batch, number, DIM, "float32", kind, axis="classes")
            for number in CLASSES[kind]
        ),
        *(searched(number, DIM, "gallery") for number in GALLERIES[kind]),
        *(pushed(classes_at, dim, "dim") for dim in DIMS[kind]),
        *(searched(gallery_at, dim, "dim") for dim in DIMS[kind]),
    ]


GROWTH = Suite(
    "How cost grows",
    (
        "Each curve is one of the cases above at other sizes, in float32, compared with its matrix "
        "product. The exponent is that of a power law fitted to the upper half of a curve (least "
        "squares on logarithms). The counts predict 2 for NDPP by classes and 1 for all others; at "
        "small sizes the cost of a call dominates. Memory is that of ours, including the inputs; "
        "an exponent of at most 1 shows that no full matrix of products is held.",
    ),
    cases,
)
