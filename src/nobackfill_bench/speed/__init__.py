"""Speed and memory, each figure beside its peer or its floor in the same run, and their page."""

from nobackfill_bench.speed.case import Case, Finding, Pair, Suite
from nobackfill_bench.speed.suites import SPEED_SUITES

__all__ = ["SPEED_SUITES", "Case", "Finding", "Pair", "Suite"]
