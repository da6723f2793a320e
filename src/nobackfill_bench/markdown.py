"""Cells and tables of Markdown."""

from collections.abc import Iterable, Sequence
from math import isfinite

from nobackfill_bench.quality.paired import OURS, Mean


def name_of(way: str) -> str:
    """Returns the name of a variant in code style; ours is bold."""
    return f"**`{way}`**" if way == OURS else f"`{way}`"


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
