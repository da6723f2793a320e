"""Upgrades that methods are compared on, run by run, and the page that is made of the runs."""

from nobackfill_bench.quality.suite import Place, Suite, Task
from nobackfill_bench.quality.suites import SUITES
from nobackfill_bench.results_log import Line

__all__ = ["SUITES", "Line", "Place", "Suite", "Task"]
