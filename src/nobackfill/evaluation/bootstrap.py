"""Confidence intervals of a mean over queries, by a bootstrap over classes."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import pi, sqrt, tan
from statistics import NormalDist
from typing import Any

import numpy as np
from jaxtyping import Float, Int, Real, UInt8
from numpy.typing import NDArray

from nobackfill.errors import DataError

CONFIDENCE = 0.95  # of all intervals
BLOCK = 2**22  # numbers held at a time
KEPT = 2**26  # bytes kept from one interval to the next
FEWEST_GROUPS = 8  # intervals of fewer groups are too narrow
FEWEST_EFFECTIVE = 4  # with fewer, one group holds most queries
SMALLEST_ERROR = 0.3  # of a sample, as a share of the measured one: its groups may all agree


@dataclass(frozen=True)
class Interval:
    """A mean and its confidence interval."""

    mean: float  # measured mean
    low: float  # lower end; NaN if there are too few classes
    high: float  # upper end; NaN if there are too few classes
    confidence: float  # confidence, such as 0.95
    groups: int  # number of classes

    def summary(self) -> dict[str, float | int | None]:
        """Returns the numbers for JSON: None for unknown ends."""
        is_known = self.low == self.low
        return {
            "mean": self.mean,
            "low": self.low if is_known else None,
            "high": self.high if is_known else None,
            "confidence": self.confidence,
            "groups": self.groups,
        }


def in_points(interval: Mapping[str, Any], *, digits: int = 2) -> str:
    """Returns a difference in percentage points, with its interval if it is known.

    Example:
        >>> in_points(Interval(0.02, 0.011, 0.03, 0.95, 9).summary(), digits=1)
        '+2.0 (+1.1 to +3.0)'
    """
    mean, low, high = (
        "" if interval[key] is None else f"{100 * interval[key]:+.{digits}f}"
        for key in ("mean", "low", "high")
    )
    return f"{mean} ({low} to {high})" if low else mean


def paired_interval(
    differences: Float[np.ndarray, " query"],
    groups: NDArray[Any],
    *,
    samples: int = 4000,
    seed: int = 0,
) -> Interval:
    r"""Returns the mean difference of paired measurements, with its interval.

    Results of queries of one class are not independent, so classes are drawn with replacement,
    each with all its queries:

    .. math::
        m^* = \frac{\sum_g w_g s_g}{\sum_g w_g n_g}, \qquad
        w \sim \mathrm{Multinomial}(G;\, 1/G, \dots, 1/G)

    with the sum :math:`s_g` of the differences of class `g` and its number :math:`n_g` of queries.
    The interval is

    .. math::
        \bigl[\, m - q_{1-\alpha/2}\, \mathrm{se}(m),\; m - q_{\alpha/2}\, \mathrm{se}(m) \,\bigr]

    where :math:`q` are quantiles of :math:`(m^* - m) / \mathrm{se}(m^*)`, see `means_and_errors`.
    These become larger if a few classes lose much while most gain a little. They are at least as
    large as those of Student's distribution with :math:`G - 1` degrees of freedom, because samples
    of few classes differ too little. :math:`G` is the effective number of groups here, see
    `effective_groups`. There is no interval with fewer than 8 groups, or fewer than 4 effective
    ones.

    Args:
        differences: Difference of each query; NaN for queries that do not count.
        groups: Class of each query.
        samples: Number of bootstrap samples.
        seed: Random seed of the samples.
    """
    if len(differences) != len(groups):
        raise DataError(
            f"an interval needs one group per difference, but got {len(groups)} and "
            f"{len(differences)}."
        )
    counted = ~np.isnan(differences)
    if not counted.any():
        raise DataError("there are no differences to average: no query has anything to find.")
    # sum up each class
    values = differences[counted]
    _, group = np.unique(np.asarray(groups)[counted], return_inverse=True)
    sizes = np.bincount(group).astype(np.float64)
    sums = np.bincount(group, weights=values)
    mean, number = float(values.mean()), len(sizes)
    effective = effective_groups(sizes)
    if number < FEWEST_GROUPS or effective < FEWEST_EFFECTIVE:
        return Interval(mean, float("nan"), float("nan"), CONFIDENCE, number)
    # draw classes
    error = float(means_and_errors(sums, sizes, np.ones((1, number)))[1][0])
    drawn, errors = draw_means(sums, sizes, samples, seed)
    scores = np.zeros(samples)
    np.divide(drawn - mean, np.maximum(errors, SMALLEST_ERROR * error), out=scores, where=error > 0)
    # take the larger of both quantiles: of the samples, and of Student's distribution
    tail = (1 - CONFIDENCE) / 2
    lowest, highest = np.quantile(scores, [tail, 1 - tail])
    student = student_quantile(tail, effective - 1)
    low, high = mean - max(highest, -student) * error, mean - min(lowest, student) * error
    return Interval(mean, float(low), float(high), CONFIDENCE, number)


def effective_groups(sizes: Float[np.ndarray, " group"]) -> int:
    r"""Returns the number of groups of equal size that average out as well (Kish, 1965), rounded.

    .. math::
        \frac{(\sum_g n_g)^2}{\sum_g n_g^2}

    Example:
        >>> effective_groups(np.array([5.0] * 10)), effective_groups(np.array([955.0] + [5.0] * 9))
        (10, 1)
    """
    return round(float(sizes.sum() ** 2 / (sizes**2).sum()))


def draw_means(
    sums: Float[np.ndarray, " group"], sizes: Float[np.ndarray, " group"], samples: int, seed: int
) -> tuple[Float[np.ndarray, " sample"], Float[np.ndarray, " sample"]]:
    """Returns the means over queries, one per sample of groups, and their standard errors."""
    blocks = [means_and_errors(sums, sizes, w) for w in draws(len(sums), samples, seed)]
    means, errors = (np.concatenate(parts) for parts in zip(*blocks, strict=True))
    return means, errors


def means_and_errors(
    sums: Float[np.ndarray, " group"],
    sizes: Float[np.ndarray, " group"],
    weights: Real[np.ndarray, "sample group"],
) -> tuple[Float[np.ndarray, " sample"], Float[np.ndarray, " sample"]]:
    r"""Returns the mean over queries of each sample, and its standard error.

    .. math::
        \mathrm{se}(m)^2 = \frac{G}{G - 1} \cdot
        \frac{\sum_g w_g (s_g - m n_g)^2}{\bigl(\sum_g w_g n_g\bigr)^2}
    """
    centre = sums.sum() / sizes.sum()  # subtracted first, so that little is lost to rounding
    rest = sums - centre * sizes
    columns = np.stack([sizes, rest, rest**2, rest * sizes, sizes**2], axis=1)
    total, shift, square, product, size = (weights @ columns).T
    mean = shift / total
    variance = (square - 2 * mean * product + mean**2 * size) * len(sums) / (len(sums) - 1)
    return centre + mean, np.sqrt(np.maximum(variance, 0)) / total


def draws(number: int, samples: int, seed: int) -> Iterator[Int[np.ndarray, "block group"]]:
    """Yields how often each group is drawn, a block of samples at a time; keeps few draws."""
    if number * samples > KEPT:
        yield from fresh_draws(number, samples, seed)
    else:
        yield from np.array_split(kept_draws(number, samples, seed), -(-number * samples // BLOCK))


@lru_cache(maxsize=1)
def kept_draws(number: int, samples: int, seed: int) -> UInt8[np.ndarray, "sample group"]:
    """Returns all draws in one array of bytes: no group is ever drawn 256 times."""
    blocks = fresh_draws(number, samples, seed)
    return np.concatenate([weights.clip(max=255).astype(np.uint8) for weights in blocks])


def fresh_draws(number: int, samples: int, seed: int) -> Iterator[Int[np.ndarray, "block group"]]:
    """Yields new draws, a block of samples at a time."""
    generator = np.random.default_rng(seed)
    step = max(1, BLOCK // number)
    for start in range(0, samples, step):
        size = min(step, samples - start)
        yield generator.multinomial(number, np.full(number, 1 / number), size=size)


def expanded_tail(tail: float, groups: int) -> float:
    """Returns the percentile that replaces `tail` with few groups.

    Example:
        >>> round(expanded_tail(0.025, 10), 4), round(expanded_tail(0.025, 10_000), 4)
        (0.0086, 0.025)
    """
    factor = (groups / (groups - 1)) ** 0.5
    return NormalDist().cdf(factor * student_quantile(tail, groups - 1))


def student_quantile(tail: float, freedom: int) -> float:
    """Returns the quantile of Student's distribution, by Hill's expansion of the normal one (1970).

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
