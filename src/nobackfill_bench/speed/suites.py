"""All suites of the speed benchmark by name, in the order of the page."""

from nobackfill_bench.speed.case import Suite
from nobackfill_bench.speed.growth import GROWTH
from nobackfill_bench.speed.head import HEAD
from nobackfill_bench.speed.loss import LOSS
from nobackfill_bench.speed.ndpp import NDPP
from nobackfill_bench.speed.odpp import ODPP
from nobackfill_bench.speed.retrieval import RETRIEVAL

SPEED_SUITES: dict[str, Suite] = {
    "retrieval": RETRIEVAL,
    "ndpp": NDPP,
    "odpp": ODPP,
    "loss": LOSS,
    "head": HEAD,
    "growth": GROWTH,
}
