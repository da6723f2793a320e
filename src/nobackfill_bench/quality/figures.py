"""SVG figures of the results page: the new/new - new/old plane, and curves over options."""

from collections.abc import Mapping

from nobackfill.report.charts import pareto_front, self_cross_plane
from nobackfill.report.svg import COLORS, SOFT, new_figure, to_svg
from nobackfill_bench.quality.paired import BASELINE, Compared, value

WHITE_STYLE = 'style="background: white; '  # a separate file has no page background
NEAR = 0.012  # share of width and height; closer labels would overlap
SHOWN = {"new_old": ("new/old", COLORS[0]), "new_new": ("new/new", COLORS[2])}


def plane(compared: Compared) -> str:
    """Plots every variant at its mean new/new and new/old mAP, in percent."""
    places = {
        way: (
            compared.mean(way, value("new_new")).value,
            compared.mean(way, value("new_old")).value,
        )
        for way in compared.ways
    }
    named = far_apart(places)
    runs = [(way if way in named else "", *place) for way, place in places.items()]
    old = list(compared.old_old.values())
    ceilings = list(compared.ceilings.values())
    svg = self_cross_plane(
        runs,
        pareto_front([(self_map, cross) for _, self_map, cross in runs]),
        old=100 * sum(old) / len(old) if old else 0.0,
        independent=100 * sum(ceilings) / len(ceilings) if ceilings else None,
    )
    return as_svg_file(svg)


def far_apart(places: Mapping[str, tuple[float, float]]) -> set[str]:
    """Returns the variants that get a label: those not too near an earlier one.

    Example:
        >>> sorted(far_apart({"a": (0.0, 0.0), "b": (0.01, 0.01), "c": (1.0, 1.0)}))
        ['a', 'c']
    """
    widths = [max(values) - min(values) or 1.0 for values in zip(*places.values(), strict=True)]
    named: dict[str, tuple[float, float]] = {}
    for way, place in places.items():
        gaps = (
            max(abs(a - b) / width for a, b, width in zip(place, other, widths, strict=True))
            for other in named.values()
        )
        if all(gap > NEAR for gap in gaps):
            named[way] = place
    return set(named)


def curves(compared: Compared, options: Mapping[str, Mapping[float, str]]) -> str:
    """Plots paired differences from the Baseline, one panel per option.

    Args:
        compared: Runs of the suite.
        options: Values of each option, in order, and the variant of each value.
    """
    with new_figure(3.4 * len(options), 3.6) as figure:
        panels = figure.subplots(1, len(options), sharey=True, squeeze=False)[0]
        for axes, (option, ways) in zip(panels, options.items(), strict=True):
            places = range(len(ways))
            for key, (name, color) in SHOWN.items():
                means = [compared.difference(way, BASELINE, value(key)) for way in ways.values()]
                axes.errorbar(
                    places, [mean.value for mean in means], [mean.half for mean in means],
                    color=color, marker="o", capsize=3, label=name,
                )  # fmt: skip
            axes.axhline(0, color=SOFT, linewidth=1, linestyle=":")
            axes.set_xticks(places, [f"{setting:g}" for setting in ways])
            axes.set_title(option)
        panels[0].set_ylabel("Δ mAP to the Baseline, points")
        panels[-1].legend(frameon=False)
        return as_svg_file(to_svg(figure))


def as_svg_file(svg: str) -> str:
    """Turns an inline figure into the text of an SVG file."""
    styled = svg.replace('style="', WHITE_STYLE, 1)
    return f'<?xml version="1.0"?>\n{styled}\n'
