"""The self/cross plane of a suite, as a file of its own."""

from collections.abc import Mapping

from nobackfill.report.charts import pareto_front, self_cross_plane
from nobackfill_bench.quality.paired import Compared, value

ON_PAPER = 'style="background: white; '  # as it does not stand on a page of ours
NEAR = 0.012  # of the width and height: two names so near would cover each other


def plane(compared: Compared) -> str:
    """Each way at its mean new/new and new/old, in percent."""
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
    return on_its_own(svg)


def far_apart(places: Mapping[str, tuple[float, float]]) -> set[str]:
    """Those that can be named: each that is not near one before it.

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


def on_its_own(svg: str) -> str:
    """A figure as a file of its own."""
    on_paper = svg.replace('style="', ON_PAPER, 1)
    return f'<?xml version="1.0"?>\n{on_paper}\n'
