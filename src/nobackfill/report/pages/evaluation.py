"""What `nobackfill evaluate` prints on request: slices, queries that change, and thresholds."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import isnan
from typing import Any

from nobackfill.core.console import visible
from nobackfill.core.numbers import count, percent
from nobackfill.core.page import Section, Table
from nobackfill.evaluation.bootstrap import FEWEST_GROUPS, in_points
from nobackfill.evaluation.overview import pair_name
from nobackfill.evaluation.query_changes import Comparison, Flipped, Slice, Threshold

SHOWN = 25  # slices and queries; JSON has all


@dataclass(frozen=True)
class Details:
    """Results to print beside the means.

    Attributes:
        slices: Columns whose worst values to print.
        smallest: Smallest number of queries of a slice.
        flips: Number of first results; queries that lose their hit among them are listed.
        false_accept: Share of strangers that pass the thresholds.
    """

    slices: Sequence[str]
    smallest: int
    flips: int | None
    false_accept: float | None

    def in_json(self, comparison: Comparison) -> dict[str, Any]:
        """The results as keys of the JSON object."""
        results: dict[str, Any] = {}
        if self.slices:
            results["slices"] = {
                column: [
                    {**asdict(part), "difference": part.difference.summary()}
                    for part in comparison.slices(column, smallest=self.smallest)
                ]
                for column in self.slices
            }
        if self.flips is not None:
            results["flipped"] = [asdict(query) for query in comparison.flipped(self.flips)]
            results["won"] = [asdict(query) for query in comparison.won(self.flips)]
        if self.false_accept is not None:
            thresholds = comparison.thresholds(self.false_accept)
            results["thresholds"] = [asdict(threshold) for threshold in thresholds]
        return results

    def as_sections(self, comparison: Comparison) -> list[Section]:
        """The results as sections of a page."""
        sections = [
            slice_section(column, comparison.slices(column, smallest=self.smallest))
            for column in self.slices
        ]
        if self.flips is not None:
            lost, won = comparison.flipped(self.flips), comparison.won(self.flips)
            sections.append(flips_section(self.flips, lost, won))
        if self.false_accept is not None:
            sections.append(thresholds_section(comparison.thresholds(self.false_accept)))
        return sections


def slice_section(column: str, slices: Sequence[Slice]) -> Section:
    """The queries with each value of a column, the worst value first."""
    is_class = column == "label"
    rows = [
        [
            str(part.value),
            f"{part.queries:,}",
            f"{100 * part.old_old:.1f}",
            f"{100 * part.new_old:.1f}",
            in_points(part.difference.summary(), digits=1),
            percent(part.lost, digits=0),
            percent(part.won, digits=0),
        ]
        for part in slices[:SHOWN]
    ]
    name = "class" if is_class else column
    columns = [name, "queries", "old/old", "new/old", "difference (95 %)", "lose", "gain"]
    smallest = min((part.queries for part in slices), default=0)
    text = f"The smallest has {count(smallest, 'query', 'queries')}."
    if len(slices) > SHOWN:
        text += f" These are the {SHOWN} worst of {len(slices):,}; JSON has all."
    if any(isnan(part.difference.low) for part in slices[:SHOWN]):
        text += f" Intervals need {FEWEST_GROUPS} {'queries' if is_class else 'classes'}."
    return Section(
        "Class by class" if is_class else f"By {column}",
        f"mAP in percent, the worst first; lose, gain: queries that lose or gain their first hit. "
        f"{text}",
        tables=[Table(columns, rows, frozenset(columns[1:]))],
    )


def flips_section(k: int, lost: Sequence[Flipped], won: Sequence[Flipped]) -> Section:
    """The queries that lose their hit in the top `k`, with their results, for the terminal."""
    lines = [
        f"{visible(str(query.query))}: first hit {query.rank_before} → {query.rank_after or '–'}; "
        f"{_listed(query.top_before)} → {_listed(query.top_after)}"
        for query in lost[:SHOWN]
    ]
    if len(lost) > SHOWN:
        lines.append(f"These are the {SHOWN} worst of {len(lost):,}; JSON has all.")
    title = f"{len(lost):,} queries lose their hit in the top {k}, {len(won):,} gain one."
    return Section(title, "\n".join(lines))


def _listed(ids: Sequence[str | int]) -> str:
    return ", ".join(visible(str(id)) for id in ids)


def thresholds_section(thresholds: Sequence[Threshold]) -> Section:
    """The threshold of each pair of models at the same rate of false accepts."""
    columns = ["query/gallery", "threshold", "strangers pass", "own class passes"]
    rows = [
        [
            pair_name(threshold.pair),
            f"{threshold.value:.4f}",
            percent(threshold.false_accept, digits=3),
            percent(threshold.true_accept),
        ]
        for threshold in thresholds
    ]
    return Section("Thresholds", tables=[Table(columns, rows, frozenset(columns[1:]))])
