"""The self/cross plane of a suite, as a file of its own."""

from nobackfill.bench.compared import Compared, value
from nobackfill.report.charts import pareto_front, self_cross_plane

ON_PAPER = 'style="background: white; '  # as it does not stand on a page of ours


def plane(compared: Compared) -> str:
    """Each way at its mean new/new and new/old, in percent."""
    runs = [
        (
            way,
            compared.mean(way, value("new_new")).value,
            compared.mean(way, value("new_old")).value,
        )
        for way in compared.ways
    ]
    old = max(compared.runs, key=lambda way: len(compared.runs[way]))
    ceilings = list(compared.ceilings.values())
    svg = self_cross_plane(
        runs,
        pareto_front([(self_map, cross) for _, self_map, cross in runs]),
        old=compared.mean(old, value("old_old")).value,
        independent=100 * sum(ceilings) / len(ceilings) if ceilings else None,
    )
    on_paper = svg.replace('style="', ON_PAPER, 1)
    return f'<?xml version="1.0"?>\n{on_paper}\n'
