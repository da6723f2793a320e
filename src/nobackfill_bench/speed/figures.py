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
        name: sorted(curve, key=lambda line: line["size"][line["axis"]])
        for name, curve in groups.items()
    }


def times_of(curve: Sequence[Line]) -> dict[float, float]:
    """Returns our seconds by size."""
    return {float(line["size"][line["axis"]]): line["ours_s"] for line in curve}


def memory_of(curve: Sequence[Line]) -> dict[float, float]:
    """Returns our gigabytes by size, including the inputs."""
    return {float(line["size"][line["axis"]]): gigabytes(line) for line in curve}


def gigabytes(line: Line) -> float:
    """Returns the peak memory of ours in GB, including the inputs."""
    return float(line["held_mb"] + line["added_mb"]) / 1e3


def growth_figure(lines: Sequence[Line]) -> str:
    """Plots time (top) and memory (bottom), with a column for each growing size."""
    curves = by_curve(lines)
    by_axis = {
        axis: {name: curve for name, curve in curves.items() if curve[0]["axis"] == axis}
        for axis in AXES
    }
    by_axis = {axis: shown for axis, shown in by_axis.items() if shown}
    with new_figure(3.6 * len(by_axis), 6.2) as figure:
        panels = figure.subplots(2, len(by_axis), squeeze=False)
        for column, (axis, shown) in enumerate(by_axis.items()):
            _draw(panels[0][column], {name: times_of(curve) for name, curve in shown.items()})
            _draw(panels[1][column], {name: memory_of(curve) for name, curve in shown.items()})
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
