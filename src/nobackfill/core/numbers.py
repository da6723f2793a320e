"""Numbers and lists as people read them."""

from collections.abc import Mapping, Sequence
from math import nan
from typing import Any


def percent(share: float, *, digits: int = 1) -> str:
    """A share with its unit.

    Example:
        >>> percent(0.1234), percent(0.1234, digits=0)
        ('12.3 %', '12 %')
    """
    return f"{100 * share:.{digits}f} %"


def maybe(value: float | None, *, digits: int = 1, unit: str = "") -> str:
    """A fraction in percent, or a dash if it was not measured."""
    return "–" if value is None else f"{100 * value:.{digits}f}{unit}"


def magnitude(digits: str) -> tuple[int, str]:
    """A key that sorts digits by the number they write, however many they are.

    Example:
        >>> sorted(["10", "9", "007"], key=magnitude)
        ['007', '9', '10']
    """
    digits = digits.lstrip("0")
    return len(digits), digits


def count(number: int, singular: str, plural: str) -> str:
    """A number with its noun.

    Example:
        >>> count(1, "query", "queries"), count(2000, "query", "queries")
        ('1 query', '2,000 queries')
    """
    return f"{number:,} {singular if number == 1 else plural}"


def out_of(counted: int, total: int) -> str:
    """A count, with the total if that is larger.

    Example:
        >>> out_of(300, 1200), out_of(1200, 1200)
        ('300 of 1,200', '1,200')
    """
    return f"{counted:,}" if counted == total else f"{counted:,} of {total:,}"


def interval_in_points(interval: Mapping[str, Any]) -> tuple[float, float, float]:
    """Mean and both ends of an interval in points, for a chart; unknown ends are NaN."""
    mean, low, high = (
        nan if interval[key] is None else 100 * interval[key] for key in ("mean", "low", "high")
    )
    return mean, low, high


def duration(seconds: int | float) -> str:
    """A time span in words.

    Example:
        >>> duration(4.2), duration(4), duration(42.0), duration(1000.0), duration(4000.0)
        ('4.2 s', '4 s', '42 s', '17 min', '1 h 7 min')
    """
    if seconds < 120:
        is_exact = seconds < 10 and not isinstance(seconds, int)
        return f"{seconds:.1f} s" if is_exact else f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def listed(parts: Sequence[str], *, comma: bool = False) -> str:
    """Joins parts of a sentence by commas and "and".

    Args:
        parts: One part or more.
        comma: Whether to put a comma before "and", too.

    Example:
        >>> listed(["a", "b", "c"]), listed(["a", "b"], comma=True), listed(["a"])
        ('a, b and c', 'a, and b', 'a')
    """
    *others, last = parts
    if not others:
        return last
    return f"{', '.join(others)}{',' if comma else ''} and {last}"
