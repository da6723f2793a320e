"""Items as SVG text: as points of a plane, or as small pictures."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from nobackfill.report.svg import COLORS, INK, new_figure, to_svg


def queries_on_gallery(
    points: Mapping[str, NDArray[Any]], classes: Mapping[str, NDArray[Any]], names: Sequence[str]
) -> str:
    """Items of the old gallery as dots, queries to it as rings: by the old model, and by the new.

    Args:
        points: The places of `gallery`, `old` and `new` queries, and `means`.
        classes: The class of each of them, as a place in `names`.
        names: Of the classes.
    """
    every = np.concatenate([points[part] for part in ("gallery", "old", "new")])
    low, high = every.min(axis=0), every.max(axis=0)
    margin = np.maximum(0.05 * (high - low), 1e-3)
    with new_figure(8.8, 4.6) as figure:
        for place, part in enumerate(("old", "new")):
            axes = figure.add_subplot(1, 2, place + 1)
            for number in range(len(names)):
                color = COLORS[number % len(COLORS)]
                dots = points["gallery"][classes["gallery"] == number]
                rings = points[part][classes[part] == number]
                axes.scatter(dots[:, 0], dots[:, 1], s=12, alpha=0.35, linewidths=0, color=color)
                axes.scatter(
                    rings[:, 0],
                    rings[:, 1],
                    s=30,
                    facecolors="none",
                    edgecolors=color,
                    linewidths=1.3,
                )
                mean = points["means"][number]
                axes.scatter(
                    mean[0], mean[1], s=120, marker="*", color=color, edgecolors=INK,
                    linewidths=0.7, zorder=3, label=str(number),
                )  # fmt: skip
            axes.set_title(f"{part}/old", loc="left")
            axes.set_xticks([])
            axes.set_yticks([])
            axes.spines[:].set_visible(True)
            axes.set_xlim(low[0] - margin[0], high[0] + margin[0])
            axes.set_ylim(low[1] - margin[1], high[1] + margin[1])
        handles, labels = axes.get_legend_handles_labels()
        legend = figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
        for text, name in zip(legend.get_texts(), names, strict=True):
            text.set_text(printable(name))
            text.set_parse_math(False)
        return to_svg(figure)


def maps(panels: Mapping[str, Mapping[str, NDArray[Any]]], classes: NDArray[Any]) -> str:
    """Points in the plane, one panel per space side by side, all on the same axes.

    Args:
        panels: For each title `points` (one per item), `prototypes` (one per class, a star) and,
            where they were moved, `moved` (one per class, an arrow's end).
        classes: The class of each point, which gives its colour.
    """
    everything = np.concatenate([part for panel in panels.values() for part in panel.values()])
    low, high = everything.min(axis=0), everything.max(axis=0)
    margin = 0.06 * (high - low)
    with new_figure(2.6 * len(panels), 2.7) as figure:
        for index, (title, panel) in enumerate(panels.items()):
            axes = figure.add_subplot(1, len(panels), index + 1)
            _one_map(axes, panel, classes)
            axes.set_title(title, loc="left")
            axes.set_xlim(low[0] - margin[0], high[0] + margin[0])
            axes.set_ylim(low[1] - margin[1], high[1] + margin[1])
        return to_svg(figure)


def _one_map(axes: Axes, panel: Mapping[str, NDArray[Any]], classes: NDArray[Any]) -> None:
    """Draws one panel of `maps`."""
    for c, at in enumerate(panel["prototypes"]):
        color = COLORS[c % len(COLORS)]
        mine = panel["points"][classes == c]
        axes.scatter(mine[:, 0], mine[:, 1], s=14, alpha=0.6, linewidths=0, color=color)
        axes.scatter(
            at[0], at[1], s=110, marker="*", color=color, edgecolors=INK, linewidths=0.7, zorder=3
        )
        if "moved" in panel:
            arrow = {"arrowstyle": "->", "color": INK, "lw": 1.1}
            axes.annotate("", panel["moved"][c], at, arrowprops=arrow, zorder=4)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[:].set_visible(True)


def pictures(images: Sequence[NDArray[Any]], colors: Sequence[str]) -> str:
    """Small grey pictures in a row, each in a frame of its colour."""
    with new_figure(10.4, 0.95) as figure:
        for index, (image, color) in enumerate(zip(images, colors, strict=True)):
            axes = figure.add_subplot(1, max(10, len(images)), index + 1)
            axes.imshow(255 - image, cmap="gray", vmin=0, vmax=255, interpolation="bilinear")
            axes.set_xticks([])
            axes.set_yticks([])
            axes.spines[:].set(visible=True, color=color, linewidth=2.2)
        return to_svg(figure)


def printable(name: str) -> str:
    r"""A name without characters that no page can show.

    Example:
        >>> printable("a\x0bb"), printable("cup")
        ('a b', 'cup')
    """
    return "".join(letter if letter.isprintable() else " " for letter in name)
