"""The numbers of an evaluation: what `nobackfill evaluate` prints, and parts of reports."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import isnan
from typing import Any

from nobackfill.core.numbers import count, maybe, out_of, percent
from nobackfill.evaluation.bootstrap import FEWEST_GROUPS, in_points
from nobackfill.evaluation.conclusion import (
    falling,
    first_sentence,
    flips_sentence,
    recovered_sentence,
    scores_sentence,
)
from nobackfill.evaluation.query_changes import Comparison, Flipped, Slice, Threshold
from nobackfill.evaluation.result import Evaluation
from nobackfill.evaluation.verdict import METRIC_NAMES, criterion_sentence
from nobackfill.report.page import Page, Section, Table

SHOWN = 25  # slices and queries; JSON has all
METRICS = {
    **METRIC_NAMES,
    "recall_at_5": "@5",
    "recall_at_10": "@10",
    "map_at_100": "mAP@100",
    "in_order": "in order",
}


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


def evaluation_page(evaluation: Evaluation, *, sections: Sequence[Section] = ()) -> Page:
    """The means, their differences and the verdict, after other sections."""
    summary = evaluation.summary()
    lines = [
        *(f"{name}: {change} mAP" for name, change in differences(summary, level=True).items()),
        *scores_sentence(summary),
        *recovered_sentence(summary),
        flips_sentence(summary),
        criterion_sentence(summary),
    ]
    queries = out_of(summary["num_queries"], summary["num_asked"])
    return Page(
        "May the new model go live on the stored vectors?",
        summary=[
            first_sentence(evaluation),
            *([] if evaluation.doubts else falling({"": summary})),
            f"({queries} queries, {summary['num_gallery']:,} gallery items)",
        ],
        verdict=evaluation.verdict,
        sections=[*sections, Section("The numbers", "\n".join(lines), [metrics_table(summary)])],
        notes=evaluation.notes,
    )


def metrics_table(summary: Mapping[str, Any]) -> Table:
    """All metrics of each pair of models, in percent."""
    columns = ["query/gallery", *METRICS.values()]
    rows = [
        [pair_name(pair), *(maybe(metrics[key], digits=2) for key in METRICS)]
        for pair, metrics in summary["metrics"].items()
    ]
    details = frozenset({"mAP@100", "in order"})
    return Table(columns, rows, frozenset(columns[1:]), details=details)


def differences(summary: Mapping[str, Any], *, level: bool = False) -> dict[str, str]:
    """Differences of mAP with their intervals, by name; `level` adds the confidence level."""
    texts = {}
    for pair, interval in summary["differences"].items():
        text = in_points(interval)
        if level and interval["low"] is not None:
            text = f"{text[:-1]}, {100 * interval['confidence']:.0f} %)"
        texts[" − ".join(pair_name(name) for name in pair.split(" - "))] = text
    return texts


def pair_name(pair: str) -> str:
    """A pair of models as people read it.

    Example:
        >>> pair_name("new_old"), pair_name("independent")
        ('new/old', 'independent')
    """
    return pair.replace("_", "/")


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
        f"{query.query}: first hit {query.rank_before} → {query.rank_after or '–'}; "
        f"{', '.join(map(str, query.top_before))} → {', '.join(map(str, query.top_after))}"
        for query in lost[:SHOWN]
    ]
    if len(lost) > SHOWN:
        lines.append(f"These are the {SHOWN} worst of {len(lost):,}; JSON has all.")
    title = f"{len(lost):,} queries lose their hit in the top {k}, {len(won):,} gain one."
    return Section(title, "\n".join(lines))


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
