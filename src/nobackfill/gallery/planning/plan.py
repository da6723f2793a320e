"""Which gallery items to embed again first, and what each share of them would bring."""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from nobackfill.core.config import suggest
from nobackfill.errors import ConfigError, DataError
from nobackfill.evaluation.bootstrap import in_points
from nobackfill.evaluation.score_scale import Scale
from nobackfill.evaluation.search_plan import SearchPlan
from nobackfill.gallery.planning.curve import Curve, crossed, curve_of, stop_at
from nobackfill.gallery.planning.inputs import Items, grouped, search_of
from nobackfill.gallery.planning.notes import bias_notes, order_notes
from nobackfill.gallery.planning.notes_plan_space import judged
from nobackfill.gallery.planning.order import best_first, random_order
from nobackfill.gallery.planning.plan_plan_file import read_plan, write_plan
from nobackfill.gallery.planning.simulate import Halves, by_order, cases, precision_when, scales_of
from nobackfill.vectors import Vectors

ORDERS = ("planned", "informed", "uncertainty", "random")
BY_OLD = ("clear", "unclear", "uncertain")  # what `planned` chooses from: which items come first
RANDOM = "random "  # what the names of single random orders begin with
SHARES = tuple(tenth / 10 for tenth in range(11))
QUERIES = 3000  # that ask, at most


@dataclass(frozen=True, eq=False)
class BackfillPlan:
    """Which items to embed again first, and what that would bring.

    Attributes:
        ids: All gallery items of the old file, best first.
        scores: Of each of them; see `expected_gain`.
        order: Which of the orders `ids` are in.
        direction: What `planned` puts first: "clear", "unclear" or "uncertain" items.
        curves: Of each order that was measured its curve.
        stop: The share of the gallery to stop at; None where nothing should be embedded again.
        advice: The same in a sentence.
        scales: Of scores on the old half and on the new one, where they must be made comparable
            when both are searched; None where cosines are compared as they are.
        counts: Of queries, of gallery items measured, of items in the order.
        seconds_per_item: What embedding one item takes, if known.
        cost_per_item: What it costs, in any currency, if known.
        notes: What a reader should know.
    """

    ids: NDArray[Any]
    scores: Float[np.ndarray, " items"]
    order: str
    direction: str
    curves: Mapping[str, Curve]
    stop: float | None
    advice: str
    scales: tuple[Scale, Scale] | None
    counts: Mapping[str, int]
    seconds_per_item: float | None = None
    cost_per_item: float | None = None
    notes: Sequence[str] = ()

    @property
    def fingerprint(self) -> str:
        """The same for plans of the same items, whatever their order."""
        return fingerprint_of(self.ids.tolist())

    def first(self, share: float | None = None) -> list[str]:
        """The ids of the first items, as text: up to a share of them, or up to `stop`."""
        share = (self.stop or 0.0) if share is None else share
        if not 0 <= share <= 1:
            raise ConfigError(f"wanted a share from 0 to 1 of the plan, but got {share}.")
        return [str(one) for one in self.ids[: round(share * len(self.ids))].tolist()]

    def check(self, ids: Iterable[Any]) -> None:
        """Raises where a gallery holds other items than the plan was made for."""
        told = list(ids)
        if fingerprint_of(told) != self.fingerprint:
            ours, theirs = set(map(str, self.ids.tolist())), set(map(str, told))
            raise DataError(
                f"wanted the gallery that the plan was made for, but {len(theirs - ours):,} items "
                f"are not in the plan and {len(ours - theirs):,} of its {len(ours):,} are not in "
                f"the gallery. Make the plan again from the vectors as they are now."
            )

    def effort(self, share: float) -> dict[str, float | int | None]:
        """How many items a share is, and what embedding them takes and costs, as far as known."""
        items = round(share * len(self.ids))
        seconds, cost = self.seconds_per_item, self.cost_per_item
        return {
            "share": share,
            "items": items,
            "seconds": None if seconds is None else items * seconds,
            "cost": None if cost is None else items * cost,
        }

    def summary(self) -> dict[str, Any]:
        """All but the order itself, as it goes into JSON."""
        shares = next(iter(self.curves.values())).shares
        return {
            "order": self.order,
            "direction": self.direction,
            "stop": self.stop,
            "advice": self.advice,
            "curves": {name: curve.summary() for name, curve in self.curves.items()},
            "scales": [asdict(one) for one in self.scales] if self.scales else None,
            "counts": dict(self.counts),
            "seconds_per_item": self.seconds_per_item,
            "cost_per_item": self.cost_per_item,
            "efforts": [self.effort(share) for share in shares],
            "fingerprint": self.fingerprint,
            "notes": list(self.notes),
        }

    def save(self, path: Path | str) -> None:
        """Writes one Parquet file with the columns id, rank and score, whole or not at all."""
        write_plan(path, self.ids, self.scores, self.summary())


def load_plan(path: Path | str) -> BackfillPlan:
    """Reads what `BackfillPlan.save` wrote."""
    ids, scores, told = read_plan(path)
    plan = BackfillPlan(
        ids,
        scores,
        told["order"],
        told["direction"],
        {name: Curve.from_summary(one) for name, one in told["curves"].items()},
        told["stop"],
        told["advice"],
        (Scale(**told["scales"][0]), Scale(**told["scales"][1])) if told["scales"] else None,
        told["counts"],
        told["seconds_per_item"],
        told["cost_per_item"],
        tuple(told["notes"]),
    )
    if plan.fingerprint != told["fingerprint"]:
        raise DataError(
            f"wanted the items that the plan at {path} was made for, but its ids have been "
            f"changed since. Make the plan again."
        )
    return plan


def plan_backfill(
    old: Vectors,
    new: Vectors,
    *,
    query_for_old: Vectors | None = None,
    group: str | None = None,
    traffic: str | None = None,
    orders: Sequence[str] = ORDERS,
    order: str = "planned",
    shares: Sequence[float] = SHARES,
    seeds: int = 5,
    seed: int = 0,
    compatible: bool | None = None,
    intersect: bool = False,
    queries: int = QUERIES,
    seconds_per_item: float | None = None,
    cost_per_item: float | None = None,
    device: str = "cpu",
    watch: Callable[[str], None] = lambda what: None,
) -> BackfillPlan:
    """Puts gallery items into an order, and measures what each share of them brings.

    The order `planned` looks at old vectors alone: items that lie clearly in their class first
    (`margin`), or those that do not, or those whose class is uncertain, whichever was best for
    queries of *other* classes. `informed` looks at the new vectors too; it is for those who have
    them and only write them into a gallery bit by bit. `uncertainty` is RACT's order.

    Args:
        old: Vectors of the model in service. Its whole gallery gets a place in the order.
        new: Vectors of the new model, of queries and gallery; with `intersect` of some of them.
        query_for_old: The new model's queries as a map made them for the old gallery.
        group: The column that says what belongs together, in place of `label`.
        traffic: The column that says how often each gallery item is asked for.
        orders: To measure, names of `ORDERS`; `random` always is.
        order: The one to write down.
        shares: Of the gallery to measure at, from 0 to 1.
        seeds: How many random orders to take the mean of.
        seed: Of all that is random.
        compatible: Whether old and new vectors are of one space, so that cosines to both can be
            compared; as the files say where it is None.
        intersect: Whether items that only one file has are left out of the measurement.
        queries: How many ask at most; of more, evenly chosen ones do.
        seconds_per_item: What embedding one item takes.
        cost_per_item: What it costs.
        device: Where to search.
        watch: Is told what is being done.
    """
    orders = _checked_orders(orders, order, shares, seeds)
    old, new = (grouped(one, group, (old, new)) for one in (old, new))
    asks = new if query_for_old is None else query_for_old
    search, notes = search_of(old, new, asks, intersect=intersect, queries=queries)
    one_space, space_notes = judged(
        old, new, told=compatible, asked_apart=query_for_old is not None
    )

    watch("ordering")
    items = Items.of(old, new, search, traffic=traffic, device=device)
    scores = items.scores()
    in_order = _by_score(scores, [*BY_OLD, *orders], items) | _by_chance(items, seeds, seed)

    halves = Halves.of(search, old, new, asks, device)
    scales = None if one_space else scales_of(search, halves)
    precision = _precision(search, halves, in_order, shares, scales, watch)
    groups = _groups(search)
    precision["planned"], direction, agreed = crossed(
        {name: precision[name] for name in BY_OLD}, shares, groups, seed=seed
    )

    curves = _curves(precision, orders, shares, groups, seed=seed)
    stop, advice = advise(curves[order])
    ids, score = _written_down(items, scores, order, direction, seed=seed)
    counts = {
        "queries": len(search.query_ids),
        "classes": len(np.unique(groups)),
        "measured": len(search.gallery_ids),
        "items": len(ids),
    }
    return BackfillPlan(
        ids=ids,
        scores=score,
        order=order,
        direction=direction,
        curves=curves,
        stop=stop,
        advice=advice,
        scales=scales,
        counts=counts,
        seconds_per_item=seconds_per_item,
        cost_per_item=cost_per_item,
        notes=(
            *notes,
            *space_notes,
            *(bias_notes(search, halves, seed) if one_space else []),
            *items.notes(traffic),
            *order_notes(curves, order, direction, agreed, counts["classes"]),
        ),
    )


def advise(curve: Curve) -> tuple[float | None, str]:
    """Where to stop, and why, in a sentence."""
    full = curve.gains[-1]
    said = f"a full backfill brings {in_points(full.summary())} points of mAP"
    if full.mean <= 0 or full.low <= 0:
        sure = "" if full.mean <= 0 else ", which may be chance"
        return None, f"do not backfill: {said}{sure}."
    stop = stop_at(curve.shares, curve.values)
    if stop == 1:
        return stop, f"embed the whole gallery again: every part of it counts; {said}."
    gain = curve.gains[list(curve.shares).index(stop)]
    return stop, (
        f"embed {100 * stop:.0f} % of the gallery again: that brings {in_points(gain.summary())} "
        f"points of mAP, and the rest hardly more; {said}."
    )


def fingerprint_of(ids: Iterable[Any]) -> str:
    """Sixteen hexadecimal digits, the same for the same ids in any order.

    Example:
        >>> fingerprint_of(["a", "b"]) == fingerprint_of(["b", "a"]) != fingerprint_of(["a"])
        True
    """
    text = "\0".join(sorted(map(str, ids)))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _checked_orders(
    orders: Sequence[str], order: str, shares: Sequence[float], seeds: int
) -> list[str]:
    """The orders to measure, in which those that are needed are; raises at what cannot be meant."""
    for one in (*orders, order):
        if one not in ORDERS:
            raise ConfigError(f"unknown order `{one}`. {suggest(one, ORDERS)}")
    rising = all(a < b for a, b in zip(shares[:-1], shares[1:], strict=True))
    if len(shares) < 2 or shares[0] != 0 or shares[-1] != 1 or not rising:
        raise ConfigError(
            f"wanted shares that rise from 0 to 1, but got {', '.join(map(str, shares))}."
        )
    if seeds < 1:
        raise ConfigError(f"wanted at least one random order to compare with, but got {seeds}.")
    return [one for one in ORDERS if one in (*orders, order, "random")]


def _by_score(
    scores: Mapping[str, Float[Tensor, " items"]], names: Sequence[str], items: Items
) -> dict[str, Int[Tensor, " gallery"]]:
    """The items that are searched, best first, in each of the named orders that has scores."""
    wanted = [name for name in names if name in scores]
    return {name: best_first(scores[name][items.measured]) for name in wanted}


def _by_chance(items: Items, seeds: int, seed: int) -> dict[str, Int[Tensor, " gallery"]]:
    """The items that are searched, in several random orders."""
    number = len(items.measured)
    return {f"{RANDOM}{one}": random_order(number, seed=seed + one) for one in range(seeds)}


def _precision(
    search: SearchPlan,
    halves: Halves,
    in_order: Mapping[str, Int[Tensor, " gallery"]],
    shares: Sequence[float],
    scales: tuple[Scale, Scale] | None,
    watch: Callable[[str], None],
) -> dict[str, Float[np.ndarray, "share query"]]:
    """The average precision of each query at each share, in each order.

    `random` is the mean of all random orders.
    """

    def tell(done: int) -> None:
        watch(f"searching: {done:,} of {len(search.query_ids):,} queries")

    is_new = cases(in_order, shares, len(search.gallery_ids))
    found = precision_when(search, halves, is_new, scales, tell)
    if np.isnan(found).all():
        raise DataError(
            "wanted queries that have something to find, but no gallery item has the label of any "
            "query. Check the column `label`."
        )
    precision = by_order(found, list(in_order), shares)
    by_chance = [one for name, one in precision.items() if name.startswith(RANDOM)]
    return precision | {"random": np.mean(by_chance, axis=0)}


def _groups(search: SearchPlan) -> NDArray[Any]:
    """The class of each query: queries of one rise and fall together."""
    assert search.query_labels is not None
    groups: NDArray[Any] = search.query_labels.numpy()
    return groups


def _curves(
    precision: Mapping[str, Float[np.ndarray, "share query"]],
    orders: Sequence[str],
    shares: Sequence[float],
    groups: NDArray[Any],
    *,
    seed: int,
) -> dict[str, Curve]:
    """The curve of each order, the random one being what the others are compared with."""
    chance = precision["random"]
    return {
        name: curve_of(
            precision[name], None if name == "random" else chance, shares, groups, seed=seed
        )
        for name in orders
    }


def _written_down(
    items: Items,
    scores: Mapping[str, Float[Tensor, " items"]],
    order: str,
    direction: str,
    *,
    seed: int,
) -> tuple[NDArray[Any], Float[np.ndarray, " items"]]:
    """All items, best first, and their scores, in the order that the plan is to have."""
    if order == "random":
        score = _random_scores(len(items.ids), seed)
    else:
        score = scores[direction if order == "planned" else order]
    place = best_first(score)
    return items.ids[place.numpy()], score.cpu()[place].double().numpy()


def _random_scores(number: int, seed: int) -> Float[Tensor, " items"]:
    """Falling from 1 by equal steps, in a random order."""
    scores = torch.empty(number)
    scores[random_order(number, seed=seed)] = 1 - torch.arange(number) / number
    return scores
