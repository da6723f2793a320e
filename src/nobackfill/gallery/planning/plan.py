"""Which gallery items to embed again first, and how much each share of them gains."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from nobackfill.core.steps import Step, Watch, unwatched
from nobackfill.core.suggest import suggest
from nobackfill.errors import ConfigError, DataError
from nobackfill.evaluation.bootstrap import in_points
from nobackfill.evaluation.file_columns import rows_of
from nobackfill.evaluation.score_scale import Scale
from nobackfill.evaluation.search_plan import SearchPlan
from nobackfill.gallery.planning.curve import Curve, crossed, curve_of, stop_at
from nobackfill.gallery.planning.inputs import Items, grouped, search_of
from nobackfill.gallery.planning.notes import bias_notes, order_notes
from nobackfill.gallery.planning.order import best_first, random_order
from nobackfill.gallery.planning.plan_file import BackfillPlan
from nobackfill.gallery.planning.shared_space import decide_space
from nobackfill.gallery.planning.simulate import Halves, by_order, cases, precision_when, scales_of
from nobackfill.gallery.sketch import Sketch, spread
from nobackfill.vectors import Vectors
from nobackfill.vectors.ids import is_in

ORDERS = ("planned", "informed", "uncertainty", "random")
BY_OLD = ("clear", "unclear", "uncertain")  # items that `planned` may put first
RANDOM = "random "  # begins the names of single random orders
SHARES = tuple(tenth / 10 for tenth in range(11))
QUERIES = 3000  # largest number of queries


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
    watch: Watch = unwatched,
) -> BackfillPlan:
    """Puts gallery items into an order, and measures the gain of each share.

    The order `planned` uses old vectors alone: it puts items first that are clearly in their class
    (`margin`), or those that are not, or those whose class is uncertain, whichever was best for
    queries of *other* classes. `informed` also uses the new vectors, for those who have them and
    write them into a gallery bit by bit. `uncertainty` is RACT's order.

    Args:
        old: Vectors of the old model; its whole gallery is put into the order.
        new: Vectors of queries and gallery by the new model; with `intersect`, of some of them.
        query_for_old: Queries of the new model, mapped for the old gallery.
        group: Column of classes, in place of `label`.
        traffic: Column with the traffic of each gallery item.
        orders: Names in `ORDERS` to measure; `random` is always measured.
        order: Order of the plan.
        shares: Shares of the gallery to measure at, from 0 to 1.
        seeds: Number of random orders whose mean is taken.
        seed: Random seed.
        compatible: Whether old and new vectors are of one space, so that cosines to both can be
            compared; None to decide it from the files.
        intersect: Whether items of only one file are left out of the measurement.
        queries: Largest number of queries; of more, evenly chosen ones are used.
        seconds_per_item: Time to embed one item.
        cost_per_item: Cost of embedding one item.
        device: Device on which to search.
        watch: Callback that receives progress messages.
    """
    # Match the files.
    orders = _checked_orders(orders, order, shares, seeds)
    old, new = (grouped(file, group, (old, new)) for file in (old, new))
    query_file = new if query_for_old is None else query_for_old
    search, notes = search_of(old, new, query_file, intersect=intersect, queries=queries)
    shared_space, space_notes = decide_space(
        old, new, compatible=compatible, mapped=query_for_old is not None
    )

    # Put the items into each order.
    watch("ordering")
    items = Items.of(old, new, search, traffic=traffic, device=device)
    scores = items.scores()
    in_order = {
        name: best_first(scores[name][items.measured])
        for name in (*BY_OLD, *orders)
        if name in scores
    }
    for number in range(seeds):
        in_order[f"{RANDOM}{number}"] = random_order(len(items.measured), seed=seed + number)

    # Measure each order; `planned` is the best of three, chosen on other classes.
    halves = Halves.of(search, old, new, query_file, device)
    scales = None if shared_space else scales_of(search, halves)
    precision = _precision(search, halves, in_order, shares, scales, watch)
    assert search.query_labels is not None
    groups: NDArray[Any] = search.query_labels.numpy()
    precision["planned"], direction, agreed = crossed(
        {name: precision[name] for name in BY_OLD}, shares, groups, seed=seed
    )
    curves = {}
    for name in orders:
        chance = None if name == "random" else precision["random"]
        curves[name] = curve_of(precision[name], chance, shares, groups, seed=seed)

    # Advise where to stop, and put all items of the gallery into the order.
    stop, advice = advise(curves[order])
    ids, score = _in_order(items, scores, direction if order == "planned" else order, seed)
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
            *(bias_notes(search, halves, seed) if shared_space else []),
            *items.notes(traffic),
            *order_notes(curves, order, direction, agreed, counts["classes"]),
        ),
        old_sketch=sketch_of(old, ids),
        new_sketch=sketch_of(new, ids[is_in(ids, new.ids)]),
    )


def sketch_of(file: Vectors, ids: NDArray[Any]) -> Sketch:
    """Returns the sketch of a file: of some of these items."""
    sample = ids[spread(len(ids))]
    vectors = rows_of(file, sample).float().cpu().numpy()
    space = None if file.space is None else file.space.fingerprint
    return Sketch.of([str(id) for id in sample.tolist()], vectors, space)


def advise(curve: Curve) -> tuple[float | None, str]:
    """Returns the share to stop at, and the reason in a sentence."""
    full = curve.gains[-1]
    gain_of_all = f"a full backfill brings {in_points(full.summary())} points of mAP"
    if full.mean <= 0 or full.low <= 0:
        chance = "" if full.mean <= 0 else ", which may be chance"
        return None, f"do not backfill: {gain_of_all}{chance}."
    stop = stop_at(curve.shares, curve.values)
    if stop == 1:
        return stop, f"embed the whole gallery again: every part of it counts; {gain_of_all}."
    gain = curve.gains[list(curve.shares).index(stop)]
    return stop, (
        f"embed {100 * stop:.0f} % of the gallery again: that brings {in_points(gain.summary())} "
        f"points of mAP, and the rest hardly more; {gain_of_all}."
    )


def _checked_orders(
    orders: Sequence[str], order: str, shares: Sequence[float], seeds: int
) -> list[str]:
    """Returns the orders to measure; raises if a setting is invalid."""
    for name in (*orders, order):
        if name not in ORDERS:
            raise ConfigError(f"unknown order `{name}`. {suggest(name, ORDERS)}")
    rising = all(a < b for a, b in zip(shares[:-1], shares[1:], strict=True))
    if len(shares) < 2 or shares[0] != 0 or shares[-1] != 1 or not rising:
        raise ConfigError(
            f"The shares must rise from 0 to 1, but are {', '.join(map(str, shares))}."
        )
    if seeds < 1:
        raise ConfigError(f"At least one random order is required, but seeds is {seeds}.")
    return [name for name in ORDERS if name in (*orders, order, "random")]


def _precision(
    search: SearchPlan,
    halves: Halves,
    in_order: Mapping[str, Int[Tensor, " gallery"]],
    shares: Sequence[float],
    scales: tuple[Scale, Scale] | None,
    watch: Watch,
) -> dict[str, Float[np.ndarray, "share query"]]:
    """Average precision of each query at each share; `random` is the mean of random orders."""

    def report(done: int) -> None:
        watch(Step("searching", done, len(search.query_ids), "queries"))

    report(0)
    is_new = cases(in_order, shares, len(search.gallery_ids))
    precision = precision_when(search, halves, is_new, scales, report)
    if np.isnan(precision).all():
        raise DataError(
            "No query has something to find: no gallery item has the label of any query. Check the "
            "column `label`."
        )
    by_name = by_order(precision, list(in_order), shares)
    by_chance = [values for name, values in by_name.items() if name.startswith(RANDOM)]
    return by_name | {"random": np.mean(by_chance, axis=0)}


def _in_order(
    items: Items, scores: Mapping[str, Float[Tensor, " items"]], order: str, seed: int
) -> tuple[NDArray[Any], Float[np.ndarray, " items"]]:
    """Ids of all items, best first, and their scores; random ones fall from 1 by equal steps."""
    if order == "random":
        number = len(items.ids)
        score = torch.empty(number)
        score[random_order(number, seed=seed)] = 1 - torch.arange(number) / number
    else:
        score = scores[order]
    place = best_first(score)
    return items.ids[place.numpy()], score.cpu()[place].double().numpy()
