"""How sure a mean over queries is: intervals by drawing classes again."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import pi, sqrt, tan
from statistics import NormalDist
from typing import Any

import numpy as np
from jaxtyping import Float, Int, UInt8
from numpy.typing import NDArray

from nobackfill.errors import DataError

BLOCK = 2**22  # numbers held at a time
KEPT = 2**26  # bytes, between one interval and the next
FEWEST_GROUPS = 8  # with fewer, intervals miss the truth more often than they say


@dataclass(frozen=True)
class Interval:
    """A mean, and between which values it lies with the given confidence.

    Attributes:
        mean: As measured.
        low: The lower end; NaN where there are too few groups to tell.
        high: The upper end, likewise.
        confidence: Such as 0.95.
        groups: How many classes were drawn from.
    """

    mean: float
    low: float
    high: float
    confidence: float
    groups: int

    def summary(self) -> dict[str, float | int | None]:
        """As it goes into JSON: None for ends that are not known."""
        known = self.low == self.low
        return {
            "mean": self.mean,
            "low": self.low if known else None,
            "high": self.high if known else None,
            "confidence": self.confidence,
            "groups": self.groups,
        }

    @property
    def decided(self) -> bool:
        """Whether the interval lies on one side of 0."""
        return self.low > 0 or self.high < 0


def in_points(one: Mapping[str, Any], *, digits: int = 2) -> str:
    """A difference in points of percent, with its interval where that is known.

    Args:
        one: As `Interval.summary` returns it.
        digits: After the point.

    Example:
        >>> in_points(Interval(0.02, 0.011, 0.03, 0.95, 9).summary(), digits=1)
        '+2.0 (+1.1 to +3.0)'
    """
    mean = f"{100 * one['mean']:+.{digits}f}"
    if one["low"] is None:
        return mean
    return f"{mean} ({100 * one['low']:+.{digits}f} to {100 * one['high']:+.{digits}f})"


def paired_interval(
    differences: Float[np.ndarray, " query"],
    groups: NDArray[Any],
    *,
    confidence: float = 0.95,
    samples: int = 4000,
    seed: int = 0,
) -> Interval:
    r"""The mean difference of paired measurements, with an interval that knows of classes.

    Queries of one class rise and fall together, so classes are drawn with replacement, each with
    all its queries, and the mean over the drawn queries is taken:

    .. math::
        m^* = \frac{\sum_g w_g s_g}{\sum_g w_g n_g}, \qquad
        w \sim \mathrm{Multinomial}(G;\, 1/G, \dots, 1/G)

    with the sum :math:`s_g` of the differences of class `g` and its number :math:`n_g` of queries.
    The interval goes from one percentile of :math:`m^*` to another. With few classes percentiles
    are too narrow; they are taken further out, at :math:`\Phi(\mp \sqrt{G/(G-1)}\; t_{G-1})`
    (Hesterberg's expanded percentiles), which is no change for many.

    Args:
        differences: One per query; NaN where a query has nothing to find, which is left out.
        groups: The class of each query.
        confidence: Of the interval.
        samples: How often to draw.
        seed: Of the drawing.
    """
    if len(differences) != len(groups):
        raise DataError(
            f"wanted one group per difference, but got {len(groups)} and {len(differences)}."
        )
    counted = ~np.isnan(differences)
    if not counted.any():
        raise DataError(
            "wanted differences to draw from, but none is a number: no query has anything to find."
        )
    values = differences[counted]
    _, group = np.unique(np.asarray(groups)[counted], return_inverse=True)
    sizes = np.bincount(group).astype(np.float64)
    sums = np.bincount(group, weights=values)
    mean, number = float(values.mean()), len(sizes)
    if number < FEWEST_GROUPS:
        return Interval(mean, float("nan"), float("nan"), confidence, number)
    means = draw_means(sums, sizes, samples, seed)
    tail = expanded_tail((1 - confidence) / 2, number)
    low, high = np.quantile(means, [tail, 1 - tail])
    return Interval(mean, float(low), float(high), confidence, number)


def draw_means(
    sums: Float[np.ndarray, " group"],
    sizes: Float[np.ndarray, " group"],
    samples: int,
    seed: int,
) -> Float[np.ndarray, " sample"]:
    """Means over queries, with the groups drawn again and again."""
    return np.concatenate(
        [(weights @ sums) / (weights @ sizes) for weights in draws(len(sums), samples, seed)]
    )


def draws(number: int, samples: int, seed: int) -> Iterator[Int[np.ndarray, "some group"]]:
    """How often each of so many groups was drawn, a block of samples at a time.

    The next interval of the same queries draws the same groups, so they are kept where they are
    not too many.
    """
    if number * samples > KEPT:
        yield from fresh_draws(number, samples, seed)
    else:
        yield from np.array_split(kept_draws(number, samples, seed), -(-number * samples // BLOCK))


@lru_cache(maxsize=1)
def kept_draws(number: int, samples: int, seed: int) -> UInt8[np.ndarray, "sample group"]:
    """The same in one array of small numbers: that one group is drawn 256 times never happens."""
    blocks = fresh_draws(number, samples, seed)
    return np.concatenate([weights.clip(max=255).astype(np.uint8) for weights in blocks])


def fresh_draws(number: int, samples: int, seed: int) -> Iterator[Int[np.ndarray, "some group"]]:
    """The same, drawn."""
    generator = np.random.default_rng(seed)
    step = max(1, BLOCK // number)
    for start in range(0, samples, step):
        wanted = min(step, samples - start)
        yield generator.multinomial(number, np.full(number, 1 / number), size=wanted)


def expanded_tail(tail: float, groups: int) -> float:
    """How far out to take percentiles, so that few groups do not look too sure.

    Example:
        >>> round(expanded_tail(0.025, 10), 4), round(expanded_tail(0.025, 10_000), 4)
        (0.0086, 0.025)
    """
    factor = (groups / (groups - 1)) ** 0.5
    return NormalDist().cdf(factor * student_quantile(tail, groups - 1))


def student_quantile(tail: float, freedom: int) -> float:
    """The quantile of Student's distribution, by Hill's expansion of the normal one (1970).

    Within 0.2 % from 3 degrees of freedom on, at the tails that intervals use; exact for 1 and 2.
    """
    if freedom == 1:
        return -1 / tan(pi * tail)
    if freedom == 2:
        return (2 * tail - 1) / sqrt(2 * tail * (1 - tail))
    z = NormalDist().inv_cdf(tail)
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    steps: list[float] = [term / freedom ** (power + 1) for power, term in enumerate(terms)]
    return z + sum(steps)
