"""Charts as SVG text: intervals, distributions, a matrix, and methods in a plane."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from nobackfill.report.svg import COLORS, INK, LINE, PAPER, SOFT, hide_y_axis, new_figure, to_svg

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WORSE, BETTER = COLORS[1], COLORS[2]


def intervals(rows: Mapping[str, tuple[float, float, float]], *, label: str) -> str:
    """Means with their intervals, one below the other, and the line of no difference.

    Args:
        rows: Mean and both ends of each interval, by name; unknown ends are NaN.
        label: Label of the axis, with its unit.
    """
    with new_figure(8.4, 0.9 + 0.42 * len(rows)) as figure:
        axes = figure.add_subplot()
        for place, (mean, low, high) in enumerate(rows.values()):
            color = BETTER if low > 0 else WORSE if high < 0 else SOFT
            axes.plot([low, high], [place, place], color=color, linewidth=3, solid_capstyle="round")
            axes.plot(mean, place, marker="o", color=color, markersize=8)
            axes.annotate(
                f"{mean:+.2f}", (mean, place), (0, 9), textcoords="offset points", ha="center",
                color=INK, fontsize=9,
            )  # fmt: skip
        axes.axvline(0, color=SOFT, linewidth=1, linestyle=":")
        axes.set_yticks(range(len(rows)), list(rows))
        axes.set_ylim(len(rows) - 0.5, -0.7)
        axes.margins(x=0.12)
        axes.set_xlabel(label)
        axes.spines["left"].set_visible(False)
        axes.tick_params(axis="y", length=0)
        return to_svg(figure)


def heat_map(values: NDArray[Any], rows: Sequence[str], columns: Sequence[str]) -> str:
    """A matrix of mAPs in percent: query by the model of the row, gallery by that of the column."""
    with new_figure(1.6 + 1.05 * len(columns), 1.1 + 0.52 * len(rows)) as figure:
        axes = figure.add_subplot()
        axes.imshow(
            values, cmap="Blues", vmin=0, vmax=1.15 * float(np.nanmax(values)), aspect="auto"
        )
        dark = 0.78 * np.nanmax(values)
        for (i, j), value in np.ndenumerate(values):
            color = "#ffffff" if value > dark else "#10202f"  # on its cell, whatever the page
            text = "" if np.isnan(value) else f"{100 * value:.1f}"
            axes.text(j, i, text, ha="center", va="center", color=color)
        axes.set_xticks(range(len(columns)), [name.replace(" ", "\n") for name in columns])
        axes.set_yticks(range(len(rows)), rows)
        axes.set_xlabel("gallery by")
        axes.set_ylabel("query by")
        axes.spines[:].set_visible(False)
        axes.tick_params(length=0)
        axes.set_xticks(np.arange(len(columns) + 1) - 0.5, minor=True)
        axes.set_yticks(np.arange(len(rows) + 1) - 0.5, minor=True)
        axes.grid(which="minor", color=PAPER, linewidth=2)
        axes.tick_params(which="minor", length=0)
        return to_svg(figure)


def score_curves(
    panels: Mapping[str, tuple[NDArray[Any], NDArray[Any], NDArray[Any]]],
    marks: Mapping[str, Sequence[float]],
) -> str:
    """Cosines of pairs of one class and of different classes, a panel for each pair of models.

    Args:
        panels: Edges of the bins and the counts of both kinds, by title.
        marks: Thresholds by title: first the pair's own, then the old one.
    """
    with new_figure(8.4, 0.9 + 1.35 * len(panels)) as figure:
        shown = [np.flatnonzero(same + other) for _, same, other in panels.values()]
        first, last = min(part[0] for part in shown), max(part[-1] for part in shown) + 1
        above: Axes | None = None
        for place, (title, (edges, same, other)) in enumerate(panels.items()):
            axes = figure.add_subplot(len(panels), 1, place + 1, sharex=above)
            above = axes
            for counts, color, name in (
                (other, SOFT, "different classes"),
                (same, COLORS[0], "one class"),
            ):
                share = counts[first:last] / max(counts.sum(), 1)
                axes.stairs(share, edges[first : last + 1], fill=True, color=color, alpha=0.25)
                axes.stairs(share, edges[first : last + 1], color=color, linewidth=1.6, label=name)
            for value, style in zip(marks[title], ("-", ":"), strict=False):
                axes.axvline(value, color=INK, linewidth=1.2, linestyle=style)
            axes.set_title(title, loc="left")
            hide_y_axis(axes)
        axes.set_xlabel("cosine")
        figure.legend(
            *axes.get_legend_handles_labels(), loc="outside upper right", ncols=2, frameon=False,
            fontsize=9,
        )  # fmt: skip
        return to_svg(figure)


def step_curves(counts: Mapping[str, NDArray[Any]], edges: NDArray[Any], *, label: str) -> str:
    """Several distributions over one axis, as outlines, from their counts in bins."""
    with new_figure(8.4, 3.2) as figure:
        axes = figure.add_subplot()
        filled = np.flatnonzero(sum(counts.values()))
        first, last = (filled[0], filled[-1] + 1) if len(filled) else (0, len(edges) - 1)
        for place, (name, part) in enumerate(counts.items()):
            color = SOFT if place == 0 else COLORS[(place - 1) % len(COLORS)]
            share = part[first:last] / max(part.sum(), 1)
            axes.stairs(share, edges[first : last + 1], color=color, linewidth=1.8, label=name)
        axes.axvline(0, color=SOFT, linewidth=1, linestyle=":")
        axes.set_xlabel(label)
        hide_y_axis(axes)
        axes.legend(frameon=False)
        return to_svg(figure)


def self_cross_plane(
    runs: Sequence[tuple[str, float, float]],
    front: Sequence[int],
    *,
    old: float,
    independent: float | None = None,
) -> str:
    """Methods in a plane: mAP after a backfill (self) and before it (cross), in percent.

    Args:
        runs: Name, new/new and new/old of each method.
        front: Places in `runs` of those that no other beats in both, from left to right.
        old: mAP of the old model; methods above it are compatible.
        independent: mAP of a model trained without constraint.
    """
    with new_figure(8.4, 4.8) as figure:
        axes = figure.add_subplot()
        # lines of the old and of the independent model
        small: dict[str, Any] = {"textcoords": "offset points", "color": SOFT, "fontsize": 9}
        axes.axhline(old, color=SOFT, linewidth=1, linestyle=":")
        axes.annotate("old/old", (1, old), (4, -3), ("axes fraction", "data"), **small)
        if independent is not None:
            axes.axvline(independent, color=SOFT, linewidth=1, linestyle=":")
            at, units = (independent, 1), ("data", "axes fraction")
            axes.annotate("independent", at, (0, 4), units, ha="center", **small)
        # points; those far below the old model are moved up to the edge
        lowest = old - 1.5 * max(max(cross for *_, cross in runs) - old, old / 4)
        points = [(self_map, max(cross, lowest)) for _, self_map, cross in runs]
        axes.plot(
            *zip(*(points[place] for place in front), strict=True),
            color=LINE, linewidth=6, zorder=1, solid_capstyle="round",
        )  # fmt: skip
        for place, (point, (*_, cross)) in enumerate(zip(points, runs, strict=True)):
            axes.scatter(
                *point, s=46 if place in front else 28, zorder=2,
                color=BETTER if cross > old else WORSE, marker="o" if cross >= lowest else "v",
            )  # fmt: skip
        # names
        axes.margins(0.14)
        names = [
            name if cross >= lowest or not name else f"{name} ({cross:.1f})"
            for name, _, cross in runs
        ]
        _name_apart(axes, names, points)
        axes.set_xlabel("new/new, mAP in percent (self: after a full backfill)")
        axes.set_ylabel("new/old, mAP in percent (cross: today)")
        return to_svg(figure)


def _name_apart(axes: "Axes", names: Sequence[str], points: Sequence[tuple[float, float]]) -> None:
    """Writes names beside their points, where they cover neither each other nor a point.

    To the right, else to the left, else as little above or below as will do, with a thin line.
    Points with an empty name get none.
    """
    height, letter, gap = 12.0, 5.6, 7.0  # points: of a line, of a letter, beside a point
    figure: Any = axes.figure
    figure.draw_without_rendering()  # computes the places
    places = [axes.transData.transform(point) * 72 / figure.dpi for point in points]
    taken = [(x - 4, x + 4, y - 4) for x, y in places]  # left, right, height

    def is_free(left: float, right: float, up: float) -> bool:
        return not any(
            left < other_right and other_left < right and abs(up - other) < height
            for other_left, other_right, other in taken
        )

    named = [label for label in zip(names, points, places, strict=True) if label[0]]
    for name, point, (at, low) in sorted(named, key=lambda label: -label[1][1]):
        width = 2 + letter * len(name)
        sides = {"left": (at + gap, at + gap + width), "right": (at - gap - width, at - gap)}
        align, up = next(
            (align, up)
            for away in range(1000)
            for up in (low - 4 + away, low - 4 - away)
            for align, (left, right) in sides.items()
            if is_free(left, right, up)
        )
        taken.append((*sides[align], up))
        line = {"arrowstyle": "-", "color": SOFT, "linewidth": 0.6, "shrinkB": 3}
        axes.annotate(
            name, point, (gap if align == "left" else -gap, up - low), ha=align,
            textcoords="offset points", fontsize=9, color=INK,
            arrowprops=line if abs(up - low + 4) > height / 2 else None,
        )  # fmt: skip


def pareto_front(points: Sequence[tuple[float, float]]) -> list[int]:
    """Places of the points that no other point reaches in both, from left to right.

    Example:
        >>> pareto_front([(1.0, 3.0), (2.0, 2.0), (1.5, 1.0), (3.0, 0.5)])
        [0, 1, 3]
    """
    order = sorted(range(len(points)), key=lambda place: (-points[place][0], -points[place][1]))
    front: list[int] = []
    highest = -np.inf
    for place in order:
        if points[place][1] > highest:
            front.append(place)
            highest = points[place][1]
    return front[::-1]
