"""Cells and tables of Markdown."""

from collections.abc import Iterable, Sequence
from math import isfinite

from nobackfill.methods import METHODS
from nobackfill_bench.quality.paired import OURS, Mean
from nobackfill_bench.quality.suite import read_way

MAPS = "maps queries"  # mark of a method whose queries differ from its stored vectors


def name_of(way: str) -> str:
    """Returns the name of a variant in code style; ours is bold, and mapped queries are marked.

    Example:
        >>> name_of("bct"), name_of("member_contrast"), name_of("rm:temperature=0.2")
        ('`bct`', '**`member_contrast`** (maps queries)', '`rm:temperature=0.2` (maps queries)')
    """
    name = f"**`{way}`**" if way == OURS else f"`{way}`"
    return f"{name} ({MAPS})" if maps_queries(way) else name


def maps_queries(way: str) -> bool:
    """Whether the method of a variant maps its queries for the old gallery."""
    method, _ = read_way(way)
    return method in METHODS and METHODS[method].maps_queries


def number(value: float, *, digits: int = 1, unit: str = "") -> str:
    """Formats a number, or a dash if it is not finite."""
    return f"{value:.{digits}f}{unit}" if isfinite(value) else "–"


def with_interval(mean: Mean, *, sign: bool = False) -> str:
    """Formats a mean with half the width of its interval.

    Example:
        >>> with_interval(Mean(1.234, 0.5, 3), sign=True)
        '+1.23 ± 0.50'
        >>> with_interval(Mean(float("nan"), float("nan"), 0))
        '–'
    """
    if not mean.seeds:
        return "–"
    text = f"{mean.value:+.2f}" if sign else f"{mean.value:.2f}"
    return f"{text} ± {mean.half:.2f}" if isfinite(mean.half) else text


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Returns the lines of a Markdown table."""
    return [
        f"| {' | '.join(head)} |",
        f"|{'---|' * len(head)}",
        *(f"| {' | '.join(row)} |" for row in rows),
    ]
