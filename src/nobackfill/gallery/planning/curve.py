"""What each share of a gallery brings when it is embedded again: curves, with how sure they are."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from nobackfill.evaluation.bootstrap import FEWEST_GROUPS, Interval, expanded_tail, paired_interval

GOAL = 0.9  # of what a full backfill gains
WORTH = 0.1  # of the gain: what must still be to come, to go on
SAMPLES = 2000


@dataclass(frozen=True)
class Curve:
    """The mean average precision over shares of the gallery, in one order.

    Attributes:
        shares: Of the gallery, embedded again.
        values: The mAP at each.
        gains: The same less that at share 0, query by query.
        over_random: The same less that of a random order; none for the random order itself.
        ahead: The mean of these over all shares: the area between the two curves.
        reached: The share at which nine tenths of the gain of a full backfill are reached; None
            where that gains nothing.
        fewer: By how much of the gallery that is earlier than in a random order.
    """

    shares: Sequence[float]
    values: Sequence[float]
    gains: Sequence[Interval]
    over_random: Sequence[Interval] = ()
    ahead: Interval | None = None
    reached: float | None = None
    fewer: Interval | None = None

    def summary(self) -> dict[str, Any]:
        """As it goes into JSON."""
        return {
            "shares": list(self.shares),
            "values": list(self.values),
            "gains": [one.summary() for one in self.gains],
            "over_random": [one.summary() for one in self.over_random],
            "ahead": self.ahead.summary() if self.ahead else None,
            "reached": self.reached,
            "fewer": self.fewer.summary() if self.fewer else None,
        }

    @classmethod
    def from_summary(cls, told: Mapping[str, Any]) -> "Curve":
        """What `summary` wrote."""
        return cls(
            tuple(told["shares"]),
            tuple(told["values"]),
            tuple(_interval(one) for one in told["gains"]),
            tuple(_interval(one) for one in told["over_random"]),
            _interval(told["ahead"]) if told["ahead"] else None,
            told["reached"],
            _interval(told["fewer"]) if told["fewer"] else None,
        )


def curve_of(
    precision: Float[np.ndarray, "share query"],
    by_chance: Float[np.ndarray, "share query"] | None,
    shares: Sequence[float],
    groups: NDArray[Any],
    *,
    seed: int,
) -> Curve:
    """The curve of one order, compared query by query with a random one.

    Args:
        precision: The average precision of each query at each share; NaN where it has nothing to
            find.
        by_chance: The same in a random order, over several seeds on average; None for itself.
        shares: From 0 to 1.
        groups: The class of each query.
        seed: Of the drawing that intervals come from.
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
    r"""The first share at which a curve has nine tenths of its gain, between points by a line.

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
    """How much earlier one order has nine tenths of the gain than another, by drawing classes.

    None where a full backfill gains nothing; without ends where it does so in too many drawings.
    """
    counted = ~np.isnan(precision[0])
    _, group = np.unique(groups[counted], return_inverse=True)
    number = int(group.max()) + 1
    sizes = np.bincount(group).astype(np.float64)
    points = np.asarray(shares)
    sums = [
        np.stack([np.bincount(group, weights=row[counted]) for row in one], axis=1)
        for one in (precision, by_chance)
    ]
    here, chance = (reached(points, (one.sum(axis=0) / sizes.sum())[None])[0] for one in sums)
    if np.isnan(here) or np.isnan(chance):
        return None
    low = high = float("nan")
    if number >= FEWEST_GROUPS:
        generator = np.random.default_rng(seed)
        weights = generator.multinomial(number, np.full(number, 1 / number), size=SAMPLES)
        total = (weights @ sizes)[:, None]
        drawn = [reached(points, (weights @ one) / total) for one in sums]
        difference = drawn[1] - drawn[0]
        tail = expanded_tail(0.025, number)
        if np.isfinite(difference).mean() > 0.95:
            low, high = np.nanquantile(difference, [tail, 1 - tail]).tolist()
    return Interval(float(chance - here), low, high, 0.95, number)


def area_under(
    values: Float[np.ndarray, "share query"], shares: Sequence[float]
) -> Float[np.ndarray, " query"]:
    """The mean of each query's values over all shares, between points by lines.

    Example:
        >>> area_under(np.array([[0.0], [1.0], [1.0]]), [0.0, 0.5, 1.0])
        array([0.75])
    """
    width = np.diff(np.asarray(shares))
    area: NDArray[np.float64] = width @ (values[1:] + values[:-1]) / 2
    return area


def stop_at(shares: Sequence[float], values: Sequence[float]) -> float:
    r"""The smallest share after which hardly anything is to come.

    .. math::
        \min \{ s : \max_{s' \ge s} f(s') - f(s) \le 0.1\, (\max f - f(0)) \}

    Example:
        >>> stop_at([0.0, 0.5, 1.0], [0.2, 0.59, 0.6]), stop_at([0.0, 0.5, 1.0], [0.2, 0.5, 0.6])
        (0.5, 1.0)
    """
    found = np.asarray(values)
    to_come = np.maximum.accumulate(found[::-1])[::-1] - found
    enough = to_come <= WORTH * (found.max() - found[0])
    return float(shares[int(enough.argmax())])


def crossed(
    candidates: Mapping[str, Float[np.ndarray, "share query"]],
    shares: Sequence[float],
    groups: NDArray[Any],
    *,
    seed: int,
) -> tuple[Float[np.ndarray, "share query"], str, bool]:
    """The best of several orders, for each half of the classes as the other half says.

    So no query is asked about an order that it had a say in.

    Returns:
        The average precision of each query, the name of the order that is best over all queries,
        and whether both halves say the same.
    """
    known = np.unique(groups)
    half = np.random.default_rng(seed).permutation(known)[: len(known) // 2]
    is_first = np.isin(groups, half)
    areas = {name: area_under(one, shares) for name, one in candidates.items()}

    def best(asked: NDArray[np.bool_]) -> str:
        return max(areas, key=lambda name: float(np.nansum(areas[name][asked])))

    by_first, by_second = best(is_first), best(~is_first)
    found = np.where(is_first, candidates[by_second], candidates[by_first])
    return found, best(np.ones_like(is_first)), by_first == by_second


def _interval(told: Mapping[str, Any]) -> Interval:
    ends = [float("nan") if told[end] is None else told[end] for end in ("low", "high")]
    return Interval(told["mean"], ends[0], ends[1], told["confidence"], told["groups"])
