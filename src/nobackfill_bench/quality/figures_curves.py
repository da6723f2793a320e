"""How a method answers to its options: one panel each, new/old and new/new over its values."""

from collections.abc import Mapping

from nobackfill.report.charts_plots import COLORS, SOFT, _figure, _svg
from nobackfill_bench.quality.figures import on_its_own
from nobackfill_bench.quality.paired import BASELINE, Compared, value

SHOWN = {"new_old": ("new/old", COLORS[0]), "new_new": ("new/new", COLORS[2])}


def curves(compared: Compared, options: Mapping[str, Mapping[float, str]]) -> str:
    """Paired differences to the Baseline with their intervals.

    Args:
        compared: The runs.
        options: Of each option its values in their order, and the ways they are.
    """
    with _figure(3.4 * len(options), 3.6) as figure:
        panels = figure.subplots(1, len(options), sharey=True, squeeze=False)[0]
        for axes, (option, its_ways) in zip(panels, options.items(), strict=True):
            places = range(len(its_ways))
            for key, (name, color) in SHOWN.items():
                means = [
                    compared.difference(way, BASELINE, value(key)) for way in its_ways.values()
                ]
                axes.errorbar(
                    places, [one.value for one in means], [one.half for one in means],
                    color=color, marker="o", capsize=3, label=name,
                )  # fmt: skip
            axes.axhline(0, color=SOFT, linewidth=1, linestyle=":")
            axes.set_xticks(places, [f"{one:g}" for one in its_ways])
            axes.set_title(option)
        panels[0].set_ylabel("Δ mAP to the Baseline, points")
        panels[-1].legend(frameon=False)
        return on_its_own(_svg(figure))
