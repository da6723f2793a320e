"""Curves: the gain of each share of a gallery that is embedded again, with intervals."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from nobackfill.evaluation.bootstrap import FEWEST_GROUPS, Interval, expanded_tail, paired_interval
from nobackfill.evaluation.summary_file import IntervalRecord

GOAL = 0.9  # share of the gain of a full backfill
WORTH = 0.1  # share of the gain that must still be missing to continue
SAMPLES = 2000


class CurveRecord(TypedDict):
    """A curve in the file of a plan."""

    shares: list[float]
    values: list[float]
    gains: list[IntervalRecord]
    over_random: list[IntervalRecord]
    ahead: IntervalRecord | None
    reached: float | None
    fewer: IntervalRecord | None


@dataclass(frozen=True)
class Curve:
    """The mean average precision over shares of the gallery, in one order."""

    shares: Sequence[float]  # shares of the gallery that are embedded again
    values: Sequence[float]  # mAP at each share
    gains: Sequence[Interval]  # differences to share 0, query by query
    over_random: Sequence[Interval] = ()  # differences to a random order; empty for that itself
    ahead: Interval | None = None  # mean of these over all shares: the area between both curves
    reached: float | None = None  # share with nine tenths of the gain of all; None without a gain
    fewer: Interval | None = None  # share of the gallery by which that is earlier than at random

    def summary(self) -> dict[str, Any]:
        """Returns the curve for JSON."""
        return {
            "shares": list(self.shares),
            "values": list(self.values),
            "gains": [gain.summary() for gain in self.gains],
            "over_random": [gain.summary() for gain in self.over_random],
            "ahead": self.ahead.summary() if self.ahead else None,
            "reached": self.reached,
            "fewer": self.fewer.summary() if self.fewer else None,
        }

    @classmethod
    def from_summary(cls, summary: CurveRecord) -> "Curve":
        """Reads what `summary` returned."""
        ahead, fewer = summary["ahead"], summary["fewer"]
        return cls(
            tuple(summary["shares"]),
            tuple(summary["values"]),
            tuple(_interval(gain) for gain in summary["gains"]),
            tuple(_interval(gain) for gain in summary["over_random"]),
            _interval(ahead) if ahead else None,
            summary["reached"],
            _interval(fewer) if fewer else None,
        )


def curve_of(
    precision: Float[np.ndarray, "share query"],
    by_chance: Float[np.ndarray, "share query"] | None,
    shares: Sequence[float],
    groups: NDArray[Any],
    *,
    seed: int,
) -> Curve:
    """Returns the curve of one order, compared with the mean of random ones query by query.

    `precision` is NaN if nothing is relevant; `by_chance` is None for the random order itself.
    """
    values = np.nanmean(precision, axis=1)
    share = float(reached(np.asarray(shares), values[None])[0])
    ahead, fewer, over_random = None, None, []
    if by_chance is not None:
        difference = precision - by_chance
        over_random = [paired_interval(row, groups, seed=seed) for row in difference]
        area = area_under(difference, shares)
        ahead = paired_interval(area, groups, seed=seed)
        fewer = fewer_items(precision, by_chance, shares, groups, seed=seed)
    return Curve(
        tuple(map(float, shares)),
        tuple(values.tolist()),
        tuple(paired_interval(row - precision[0], groups, seed=seed) for row in precision),
        tuple(over_random),
        ahead,
        None if np.isnan(share) else share,
        fewer,
    )


def reached(
    shares: Float[np.ndarray, " share"], values: Float[np.ndarray, "curve share"]
) -> Float[np.ndarray, " curve"]:
    r"""Returns the first share at which a curve has nine tenths of its gain, interpolated.

    .. math::
        \min \{ s : f(s) \ge f(0) + 0.9\, (f(1) - f(0)) \}

    NaN for a curve that gains nothing.

    Example:
        >>> reached(np.array([0.0, 0.5, 1.0]), np.array([[0.0, 0.6, 1.0], [1.0, 1.0, 1.0]]))
        array([0.875,   nan])
    """
    goal = values[:, 0] + GOAL * (values[:, -1] - values[:, 0])
    after = (values >= goal[:, None]).argmax(axis=1)
    before, row = np.maximum(after - 1, 0), np.arange(len(values))
    low, high = values[row, before], values[row, after]
    part = (goal - low) / np.where(high > low, high - low, 1.0)
    share = shares[before] + part * (shares[after] - shares[before])
    return np.where(values[:, -1] > values[:, 0], share, np.nan)


def fewer_items(
    precision: Float[np.ndarray, "share query"],
    by_chance: Float[np.ndarray, "share query"],
    shares: Sequence[float],
    groups: NDArray[Any],
    *,
    seed: int,
) -> Interval | None:
    """Returns how much earlier one order reaches its goal than another, by a bootstrap of classes.

    None if a full backfill gains nothing; ends are NaN if it does so in too many samples.
    """
    # Sum the precision of each class at each share.
    counted = ~np.isnan(precision[0])
    _, group = np.unique(groups[counted], return_inverse=True)
    number = int(group.max()) + 1
    sizes = np.bincount(group).astype(np.float64)
    points = np.asarray(shares)
    sums = [
        np.stack([np.bincount(group, weights=row[counted]) for row in values], axis=1)
        for values in (precision, by_chance)
    ]
    here, chance = (reached(points, (total.sum(axis=0) / sizes.sum())[None])[0] for total in sums)
    if np.isnan(here) or np.isnan(chance):
        return None

    # Draw classes again and again.
    low = high = float("nan")
    if number >= FEWEST_GROUPS:
        generator = np.random.default_rng(seed)
        weights = generator.multinomial(number, np.full(number, 1 / number), size=SAMPLES)
        total = (weights @ sizes)[:, None]
        drawn = [reached(points, (weights @ values) / total) for values in sums]
        difference = drawn[1] - drawn[0]
        tail = expanded_tail(0.025, number)
        if np.isfinite(difference).mean() > 0.95:
            low, high = np.nanquantile(difference, [tail, 1 - tail]).tolist()
    return Interval(float(chance - here), low, high, 0.95, number)


def area_under(
    values: Float[np.ndarray, "share query"], shares: Sequence[float]
) -> Float[np.ndarray, " query"]:
    """Returns the area under each query's values over all shares, interpolated."""
    width = np.diff(np.asarray(shares))
    area: NDArray[np.float64] = width @ (values[1:] + values[:-1]) / 2
    return area


def stop_at(shares: Sequence[float], values: Sequence[float]) -> float:
    r"""Returns the smallest share after which hardly any gain is missing.

    .. math::
        \min \{ s : \max_{s' \ge s} f(s') - f(s) \le 0.1\, (\max f - f(0)) \}

    Example:
        >>> stop_at([0.0, 0.5, 1.0], [0.2, 0.59, 0.6]), stop_at([0.0, 0.5, 1.0], [0.2, 0.5, 0.6])
        (0.5, 1.0)
    """
    points = np.asarray(values)
    missing = np.maximum.accumulate(points[::-1])[::-1] - points
    enough = missing <= WORTH * (points.max() - points[0])
    return float(shares[int(enough.argmax())])


def crossed(
    candidates: Mapping[str, Float[np.ndarray, "share query"]],
    shares: Sequence[float],
    groups: NDArray[Any],
    *,
    seed: int,
) -> tuple[Float[np.ndarray, "share query"], str, bool]:
    """Returns the best of several orders, chosen for each half of the classes by the other half.

    No query is then measured in an order that it helped to choose.

    Returns:
        Average precision of each query, name of the order that is best over all queries, and
        whether both halves choose the same.
    """
    known = np.unique(groups)
    half = np.random.default_rng(seed).permutation(known)[: len(known) // 2]
    is_first = np.isin(groups, half)
    areas = {name: area_under(values, shares) for name, values in candidates.items()}

    def best(mask: NDArray[np.bool_]) -> str:
        return max(areas, key=lambda name: float(np.nansum(areas[name][mask])))

    by_first, by_second = best(is_first), best(~is_first)
    precision = np.where(is_first, candidates[by_second], candidates[by_first])
    return precision, best(np.ones_like(is_first)), by_first == by_second


def _interval(summary: IntervalRecord) -> Interval:
    nan = float("nan")
    mean, low, high = (
        nan if value is None else value
        for value in (summary["mean"], summary["low"], summary["high"])
    )
    return Interval(mean, low, high, summary["confidence"], summary["groups"])
