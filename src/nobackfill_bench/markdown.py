"""Cells and tables of Markdown."""

from collections.abc import Iterable, Sequence
from math import isfinite

from nobackfill_bench.quality.paired import OURS, Mean


def name_of(way: str) -> str:
    """Ours stands out."""
    return f"**`{way}`**" if way == OURS else f"`{way}`"


def number(one: float, *, digits: int = 1, unit: str = "") -> str:
    """A number, or a dash where there is none."""
    return f"{one:.{digits}f}{unit}" if isfinite(one) else "–"


def with_interval(mean: Mean, *, sign: bool = False) -> str:
    """A mean with half its interval.

    Example:
        >>> with_interval(Mean(1.234, 0.5, 3), sign=True)
        '+1.23 ± 0.50'
        >>> with_interval(Mean(float("nan"), float("nan"), 0))
        '–'
    """
    if not mean.seeds:
        return "–"
    said = f"{mean.value:+.2f}" if sign else f"{mean.value:.2f}"
    return f"{said} ± {mean.half:.2f}" if isfinite(mean.half) else said


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A table of Markdown."""
    return [
        f"| {' | '.join(head)} |",
        f"|{'---|' * len(head)}",
        *(f"| {' | '.join(row)} |" for row in rows),
    ]
