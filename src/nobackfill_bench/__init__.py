"""Benchmarks: upgrades on which methods are compared, their runs, and the result pages."""

from importlib import import_module
from typing import Any

_HOME = {"SUITES": "quality.suites", "Place": "quality.suite", "Suite": "quality.suite"} | {
    "Task": "quality.suite",
    "Line": "results_log",
}


def __getattr__(name: str) -> Any:
    """Imports a public name on first use, so that `nobackfill --help` does not import torch."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)


__all__ = ["SUITES", "Line", "Place", "Suite", "Task"]  # noqa: F822
