"""Upgrades that methods are compared on, run by run, and the page that is made of the runs."""

from nobackfill.bench.lines import Line
from nobackfill.bench.suite import Place, Suite, Task
from nobackfill.bench.suites import SUITES

__all__ = ["SUITES", "Line", "Place", "Suite", "Task"]
