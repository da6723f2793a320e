"""Figures of the growth of time and memory, on logarithmic axes."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes

from nobackfill.report.svg import COLORS, SOFT, new_figure, to_svg
from nobackfill_bench.quality.figures import as_svg_file
from nobackfill_bench.results_log import Line
from nobackfill_bench.speed.extrapolate import exponent

AXES = {"classes": "classes", "gallery": "gallery items", "dim": "dimensions"}


def by_curve(lines: Sequence[Line]) -> dict[str, list[Line]]:
    """Returns the results of each curve, the smallest size first."""
    groups: dict[str, list[Line]] = defaultdict(list)
    for line in lines:
        if line.get("axis"):
            groups[line["case"]].append(line)
    return {
        name: sorted(its, key=lambda line: line["size"][line["axis"]])
        for name, its in groups.items()
    }


def times_of(curve: Sequence[Line]) -> dict[float, float]:
    """Returns our seconds by size."""
    return {float(line["size"][line["axis"]]): line["ours_s"] for line in curve}


def memory_of(curve: Sequence[Line]) -> dict[float, float]:
    """Returns our gigabytes by size, including the inputs."""
    return {
        float(line["size"][line["axis"]]): (line["held_mb"] + line["added_mb"]) / 1e3
        for line in curve
    }


def growth_figure(lines: Sequence[Line]) -> str:
    """Plots time (top) and memory (bottom), with a column for each growing size."""
    curves = by_curve(lines)
    axes_there = [axis for axis in AXES if any(its[0]["axis"] == axis for its in curves.values())]
    with new_figure(3.6 * len(axes_there), 6.2) as figure:
        panels = figure.subplots(2, len(axes_there), squeeze=False)
        for column, axis in enumerate(axes_there):
            shown = {name: its for name, its in curves.items() if its[0]["axis"] == axis}
            _draw(panels[0][column], {name: times_of(its) for name, its in shown.items()})
            _draw(panels[1][column], {name: memory_of(its) for name, its in shown.items()})
            panels[1][column].set_xlabel(AXES[axis])
        panels[0][0].set_ylabel("seconds")
        panels[1][0].set_ylabel("memory, GB")
        return as_svg_file(to_svg(figure))


def _draw(axes: Axes, curves: Mapping[str, Mapping[float, float]]) -> None:
    """Draws one panel."""
    for color, (name, points) in zip(COLORS, curves.items(), strict=False):
        grows = exponent(points)
        shown = {size: value for size, value in points.items() if value > 0}
        label = name.split(" by ")[0].replace("`", "")
        label += "" if grows is None else f", power {grows:.2f}"
        axes.plot(
            list(shown), list(shown.values()), marker="o", markersize=4, color=color, label=label
        )
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.tick_params(which="minor", colors=SOFT)
    axes.legend(frameon=False, fontsize=8)
