"""Which gallery items to embed again first, and what each share of them would bring."""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from nobackfill.bootstrap import FEWEST_GROUPS, in_points, paired_interval
from nobackfill.config import suggest
from nobackfill.errors import ConfigError, DataError, SpaceMismatch
from nobackfill.gallery.curve import Curve, crossed, curve_of, stop_at
from nobackfill.gallery.measure import Halves, by_order, cases, precision_when, scales_of
from nobackfill.gallery.order import (
    best_first,
    random_order,
)
from nobackfill.gallery.plan_file import read_plan, write_plan
from nobackfill.gallery.plan_inputs import Items, grouped, search_of
from nobackfill.matching import SearchPlan
from nobackfill.strategies import Scale
from nobackfill.vectors import Vectors

ORDERS = ("planned", "informed", "uncertainty", "random")
BY_OLD = ("clear", "unclear", "uncertain")  # what `planned` chooses from: which items come first
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
    is_told = compatible is not None or query_for_old is not None
    if compatible is None:
        compatible = query_for_old is None and says_one_space(old, new)
    if compatible and new.dim != old.dim:
        raise SpaceMismatch(
            f"wanted old and new vectors of one space, but they have {old.dim} and {new.dim} "
            f"dimensions. Leave out `compatible`: scores are then made comparable."
        )
    watch("ordering")
    items = Items.of(old, new, search, traffic=traffic, device=device)
    ranked = items.scores()
    wanted = [*BY_OLD, *(one for one in orders if one in ranked)]
    rows = {name: best_first(ranked[name][items.measured]) for name in wanted}
    number = len(search.gallery_ids)
    rows |= {f"random {one}": random_order(number, seed=seed + one) for one in range(seeds)}
    halves = Halves.of(search, old, new, asks, device)
    scales = None if compatible else scales_of(search, halves)

    def tell(done: int) -> None:
        watch(f"searching: {done:,} of {len(search.query_ids):,} queries")

    found = precision_when(search, halves, cases(rows, shares, number), scales, tell)
    if np.isnan(found).all():
        raise DataError(
            "wanted queries that have something to find, but no gallery item has the label of any "
            "query. Check the column `label`."
        )
    precision = by_order(found, list(rows), shares)
    assert search.query_labels is not None
    groups = search.query_labels.numpy()
    precision["random"] = np.mean([precision[f"random {one}"] for one in range(seeds)], axis=0)
    precision["planned"], direction, agreed = crossed(
        {name: precision[name] for name in BY_OLD}, shares, groups, seed=seed
    )
    curves = {
        name: curve_of(
            precision[name],
            None if name == "random" else precision["random"],
            shares,
            groups,
            seed=seed,
        )
        for name in orders
    }
    ranked["planned"] = ranked[direction]
    ranked["random"] = _random_scores(len(items.ids), seed).to(device)
    place = best_first(ranked[order])
    stop, advice = advise(curves[order])
    return BackfillPlan(
        ids=items.ids[place.numpy()],
        scores=ranked[order].cpu()[place].double().numpy(),
        order=order,
        direction=direction,
        curves=curves,
        stop=stop,
        advice=advice,
        scales=scales,
        counts={
            "queries": len(search.query_ids),
            "classes": len(np.unique(groups)),
            "measured": number,
            "items": len(items.ids),
        },
        seconds_per_item=seconds_per_item,
        cost_per_item=cost_per_item,
        notes=(
            *notes,
            *_space_notes(scales, is_told=is_told),
            *([] if scales else _bias_notes(search, halves, seed)),
            *items.notes(traffic),
            *_order_notes(curves, order, direction, agreed, len(np.unique(groups))),
        ),
    )


def says_one_space(old: Vectors, new: Vectors) -> bool:
    """Whether the files say that the new vectors were made for the space of the old ones."""
    if old.space is None or new.space is None or old.dim != new.dim:
        return False
    return old.space.fingerprint in (new.space.parent, new.space.fingerprint)


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


def _random_scores(number: int, seed: int) -> Float[Tensor, " items"]:
    scores = torch.empty(number)
    scores[random_order(number, seed=seed)] = 1 - torch.arange(number) / number
    return scores


def _space_notes(scales: tuple[Scale, Scale] | None, *, is_told: bool) -> list[str]:
    """How scores of both halves were compared."""
    if scales is None:
        return []
    notes = [
        "scores on both halves are compared in deviations from those of strangers: a search of the "
        "mixed gallery must do the same"
    ]
    if not is_told:
        notes.append(
            "nothing says that the new vectors are of the old space: new queries asked the old "
            "gallery as they are. If they are, say so (`compatible`)"
        )
    return notes


def _order_notes(
    curves: Mapping[str, Curve], order: str, direction: str, agreed: bool, classes: int
) -> list[str]:
    """Whether the order is worth anything."""
    notes = []
    if classes < FEWEST_GROUPS:
        notes.append(
            f"no intervals: they need queries of at least {FEWEST_GROUPS} classes, and these are "
            f"of {classes}"
        )
    ahead = curves[order].ahead
    if ahead is not None and not ahead.low > 0:
        notes.append(
            f"the order `{order}` is not surely better than a random one: "
            f"{in_points(ahead.summary())} points of mAP, on average over all shares"
        )
    if order == "planned" and not agreed:
        notes.append(
            f"two halves of the classes would have other items first: that {direction} ones come "
            f"first here means little"
        )
    return notes


def _bias_notes(search: SearchPlan, halves: Halves, seed: int) -> list[str]:
    """Whether cosines to new vectors run higher than to old ones, though they are of one space."""
    number = len(search.gallery_ids)
    half = cases({"random": random_order(number, seed=seed)}, (0.0, 0.5, 1.0), number)[2:]
    apart = precision_when(search, halves, half, scales_of(search, halves))
    as_they_are = precision_when(search, halves, half, None)
    assert search.query_labels is not None
    lost = paired_interval((apart - as_they_are)[0], search.query_labels.numpy(), seed=seed)
    if not lost.low > 0:
        return []
    return [
        f"cosines to old and new vectors mean different things, though they are of one space: "
        f"compared in deviations from strangers, a half-done gallery gives "
        f"{in_points(lost.summary())} points of mAP more (`compatible=False`)"
    ]
