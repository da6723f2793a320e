"""All suites of speed by name, in the order of the page."""

from nobackfill.bench.speed.case import Suite
from nobackfill.bench.speed.growth import GROWTH
from nobackfill.bench.speed.head import HEAD
from nobackfill.bench.speed.loss import LOSS
from nobackfill.bench.speed.ndpp import NDPP
from nobackfill.bench.speed.odpp import ODPP
from nobackfill.bench.speed.retrieval import RETRIEVAL

SPEED_SUITES: dict[str, Suite] = {
    "retrieval": RETRIEVAL,
    "ndpp": NDPP,
    "odpp": ODPP,
    "loss": LOSS,
    "head": HEAD,
    "growth": GROWTH,
}
