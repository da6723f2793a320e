"""Means over seeds, and how sure they are."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, nan, sqrt
from statistics import fmean, stdev

# Student's t: 97.5 % of what is drawn lies below, by degrees of freedom from 1 on
QUANTILES = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
    2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
    2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip


@dataclass(frozen=True)
class Mean:
    """A mean over seeds with its 95 % interval.

    Attributes:
        value: The mean.
        half: Half the width of the interval; infinite for one seed.
        seeds: How many there are.
    """

    value: float
    half: float
    seeds: int

    @property
    def low(self) -> float:
        """Where the interval begins."""
        return self.value - self.half

    @property
    def high(self) -> float:
        """Where it ends."""
        return self.value + self.half


def mean_of(values: Sequence[float]) -> Mean:
    r"""The mean of independent values, and its interval by Student's t.

    .. math::
        \bar x \pm t_{0.975, n - 1} \, s / \sqrt n

    Of paired differences, it tells whether one way is better than the other on the same seeds.

    Example:
        >>> mean_of([1.0, 2.0, 3.0])
        Mean(value=2.0, half=2.484..., seeds=3)
    """
    if not values:
        return Mean(nan, nan, 0)
    if len(values) == 1:
        return Mean(values[0], inf, 1)
    quantile = QUANTILES[min(len(values) - 1, len(QUANTILES)) - 1]
    return Mean(fmean(values), quantile * stdev(values) / sqrt(len(values)), len(values))
