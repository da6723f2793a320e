"""The report on a backfill plan: which items first, and how many."""

from collections.abc import Mapping
from typing import Any

from nobackfill.core.page import Figure, Section, Table
from nobackfill.evaluation.bootstrap import in_points
from nobackfill.report.svg import COLORS, SOFT, new_figure, to_svg

ORDERS = {
    "planned": "by old vectors alone",
    "informed": "by old and new vectors",
    "uncertainty": "most uncertain first",
    "random": "at random",
}


def backfill_section(plan: Mapping[str, Any]) -> Section:
    """The mAP after embedding each share of the gallery again, in each order.

    Args:
        plan: Result of `BackfillPlan.summary`.
    """
    curves, counts = plan["curves"], plan["counts"]
    return Section(
        "Embedding the gallery again, bit by bit",
        f"{plan['advice'][0].upper()}{plan['advice'][1:]} mAP in percent of "
        f"{counts['queries']:,} queries on {counts['measured']:,} gallery items, some of which are "
        f"new. {_explain_orders(plan)}",
        tables=[_order_table(plan), _share_table(plan)],
        figures=[
            Figure(
                lambda: share_curves(curves, plan["stop"]),
                "mAP over the share embedded again",
                "; ".join(f"{name}: {_course(curve)}" for name, curve in curves.items()) + ".",
            )
        ],
    )


def share_curves(curves: Mapping[str, Mapping[str, Any]], stop: float | None) -> str:
    """Curves over the share of the gallery, with 95 % intervals of the gain where known.

    Args:
        curves: Results of `Curve.summary`, by order.
        stop: Share to stop at, if any.
    """
    with new_figure(8.4, 4.2) as figure:
        axes = figure.add_subplot()
        named = [name for name in curves if name != "random"]
        for name, curve in curves.items():
            color = SOFT if name == "random" else COLORS[named.index(name)]
            shares = [100 * share for share in curve["shares"]]
            values = [100 * value for value in curve["values"]]
            axes.plot(shares, values, color=color, marker="o", markersize=4, label=name)
            gaps = curve["over_random"]
            if gaps and all(gap["low"] is not None for gap in gaps):
                chance = [100 * value for value in curves["random"]["values"]]
                low, high = (
                    [value + 100 * gap[end] for value, gap in zip(chance, gaps, strict=True)]
                    for end in ("low", "high")
                )
                axes.fill_between(shares, low, high, color=color, alpha=0.15, linewidth=0)
        if stop is not None:
            axes.axvline(100 * stop, color=SOFT, linewidth=1, linestyle=":")
            axes.annotate(
                "stop", (100 * stop, 0), (4, 4), xycoords=("data", "axes fraction"),
                textcoords="offset points", color=SOFT, fontsize=9,
            )  # fmt: skip
        axes.set_xlabel("percent of the gallery embedded again; bands: 95 % against random")
        axes.set_ylabel("mAP in percent")
        axes.legend(frameon=False)
        return to_svg(figure)


def _explain_orders(plan: Mapping[str, Any]) -> str:
    """Explains the names of the orders."""
    orders = [f"“{name}” is {ORDERS[name]}" for name in plan["curves"]]
    first = f"; planned puts {plan['direction']} items first" if "planned" in plan["curves"] else ""
    return f"{'; '.join(orders)}{first}."


def _order_table(plan: Mapping[str, Any]) -> Table:
    """A row for each order."""
    columns = ["order", "90 % of the gain at", "earlier than random (95 %)", "mAP over random"]
    rows = []
    for name, curve in plan["curves"].items():
        at = "–" if curve["reached"] is None else f"{100 * curve['reached']:.1f} %"
        rows.append(
            [
                name,
                at,
                *(
                    "–" if interval is None else in_points(interval, digits=1)
                    for interval in (curve["fewer"], curve["ahead"])
                ),
            ]
        )
    return Table(
        columns,
        rows,
        frozenset(columns[1:]),
        list(plan["curves"]).index(plan["order"]),
        "Orders: points are of the gallery, then of mAP on average over all shares",
    )


def _share_table(plan: Mapping[str, Any]) -> Table:
    """A row for each share."""
    curves, efforts = plan["curves"], plan["efforts"]
    known = [key for key in ("seconds", "cost") if efforts[-1][key] is not None]
    columns = ["share", "items", *curves, f"{plan['order']} gains (95 %)", *known]
    rows = [
        [
            f"{100 * effort['share']:.0f} %",
            f"{effort['items']:,}",
            *(f"{100 * curve['values'][place]:.2f}" for curve in curves.values()),
            in_points(curves[plan["order"]]["gains"][place]),
            *(f"{effort[key]:,.2f}" for key in known),
        ]
        for place, effort in enumerate(efforts)
    ]
    return Table(columns, rows, frozenset(columns), caption="mAP in percent at each share")


def _course(curve: Mapping[str, Any]) -> str:
    """A curve in words."""
    values = curve["values"]
    middle = len(values) // 2
    return (
        f"from {100 * values[0]:.1f} over {100 * values[middle]:.1f} at "
        f"{100 * curve['shares'][middle]:.0f} % to {100 * values[-1]:.1f}"
    )
