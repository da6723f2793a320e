"""Items of a space as SVG text: points of a plane, coloured by class."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nobackfill.report.svg import COLORS, INK, new_figure, to_svg

LAYOUTS = {"tsne": "t-SNE", "pca": "the two main directions (PCA)"}  # in captions


def queries_on_gallery(
    points: Mapping[str, NDArray[Any]], classes: Mapping[str, NDArray[Any]], names: Sequence[str]
) -> str:
    """Old gallery items as dots, with old queries as rings on one map and new ones on another.

    Args:
        points: Points of `gallery`, of `old` and `new` queries, and of class `means`.
        classes: Class of each point, as an index of `names`.
        names: Names of the classes.
    """
    with new_figure(8.8, 4.6) as figure:
        for place, part in enumerate(("old", "new")):
            axes: Any = figure.add_subplot(1, 2, place + 1)
            for number in range(len(names)):
                color = COLORS[number % len(COLORS)]
                dots, rings = (points[p][classes[p] == number] for p in ("gallery", part))
                axes.scatter(*dots.T, s=12, alpha=0.35, linewidths=0, color=color)
                axes.scatter(*rings.T, s=30, facecolors="none", edgecolors=color, linewidths=1.3)
                _draw_star(axes, points["means"][number], color, label=str(number))
            _frame(axes, f"{part}/old", [points[p] for p in ("gallery", "old", "new")])
        handles, labels = axes.get_legend_handles_labels()
        legend = figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
        for text, name in zip(legend.get_texts(), names, strict=True):
            text.set_text(printable(name))
            text.set_parse_math(False)
        return to_svg(figure)


def maps(panels: Mapping[str, Mapping[str, NDArray[Any]]], classes: NDArray[Any]) -> str:
    """Points in the plane, one panel per space side by side, all on the same axes.

    Args:
        panels: Panels by title: `points` (one per item), `prototypes` (one per class, a star) and,
            if they were moved, `moved` (one per class, an arrow's end).
        classes: Class of each point, which determines its colour.
    """
    with new_figure(2.6 * len(panels), 2.7) as figure:
        for index, (title, panel) in enumerate(panels.items()):
            axes: Any = figure.add_subplot(1, len(panels), index + 1)
            for number, prototype in enumerate(panel["prototypes"]):
                color = COLORS[number % len(COLORS)]
                dots = panel["points"][classes == number]
                axes.scatter(*dots.T, s=14, alpha=0.6, linewidths=0, color=color)
                _draw_star(axes, prototype, color)
                if "moved" in panel:
                    arrow = {"arrowstyle": "->", "color": INK, "lw": 1.1}
                    axes.annotate("", panel["moved"][number], prototype, arrowprops=arrow, zorder=4)
            _frame(axes, title, [part for other in panels.values() for part in other.values()])
        return to_svg(figure)


def _draw_star(axes: Any, point: NDArray[Any], color: str, *, label: str | None = None) -> None:
    """Draws the mean of a class."""
    axes.scatter(
        *point, s=120, marker="*", color=color, edgecolors=INK, linewidths=0.7, zorder=3,
        label=label,
    )  # fmt: skip


def _frame(axes: Any, title: str, points: Sequence[NDArray[Any]]) -> None:
    """Gives a panel a title and a box around all points, without numbers."""
    everything = np.concatenate(points)
    low, high = everything.min(axis=0), everything.max(axis=0)
    margin = np.maximum(0.06 * (high - low), 1e-3)
    axes.set_title(title, loc="left")
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[:].set_visible(True)
    axes.set_xlim(low[0] - margin[0], high[0] + margin[0])
    axes.set_ylim(low[1] - margin[1], high[1] + margin[1])


def printable(name: str) -> str:
    r"""A name without characters that no page can show.

    Example:
        >>> printable("a\x0bb"), printable("cup")
        ('a b', 'cup')
    """
    return "".join(letter if letter.isprintable() else " " for letter in name)
