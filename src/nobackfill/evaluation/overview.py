"""What `print` and `nobackfill evaluate` show of an evaluation."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from nobackfill.core.numbers import maybe, out_of
from nobackfill.core.page import Page, Section, Table
from nobackfill.evaluation.bootstrap import in_points
from nobackfill.evaluation.conclusion import (
    falling,
    first_sentence,
    flips_sentence,
    recovered_sentence,
    scores_sentence,
)
from nobackfill.evaluation.verdict import METRIC_NAMES, criterion_sentence

if TYPE_CHECKING:
    from nobackfill.evaluation.result import Evaluation

METRICS = {
    **METRIC_NAMES,
    "recall_at_5": "@5",
    "recall_at_10": "@10",
    "map_at_100": "mAP@100",
    "in_order": "in order",
}


def evaluation_page(evaluation: "Evaluation", *, sections: Sequence[Section] = ()) -> Page:
    """Makes the page: verdict, means, differences, other sections, and what was not measured."""
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
        sections=[Section("The numbers", "\n".join(lines), [metrics_table(summary)]), *sections],
        not_measured=not_measured(evaluation),
        notes=[note for note in evaluation.notes if note not in evaluation.doubts],
    )


def metrics_table(summary: Mapping[str, Any]) -> Table:
    """Returns all metrics of each pair of models, in percent."""
    columns = ["query/gallery", *METRICS.values()]
    rows = [
        [pair_name(pair), *(maybe(metrics[key], digits=2) for key in METRICS)]
        for pair, metrics in summary["metrics"].items()
    ]
    details = frozenset({"mAP@100", "in order"})
    return Table(columns, rows, frozenset(columns[1:]), details=details)


def differences(summary: Mapping[str, Any], *, level: bool = False) -> dict[str, str]:
    """Returns differences of mAP with intervals, by name; `level` adds the confidence level."""
    texts = {}
    for pair, interval in summary["differences"].items():
        text = in_points(interval)
        if level and interval["low"] is not None:
            text = f"{text[:-1]}, {100 * interval['confidence']:.0f} %)"
        texts[" − ".join(pair_name(name) for name in pair.split(" - "))] = text
    return texts


def pair_name(pair: str) -> str:
    """Returns the printed name of a pair of models.

    Example:
        >>> pair_name("new_old"), pair_name("independent")
        ('new/old', 'independent')
    """
    return pair.replace("_", "/")


def not_measured(evaluation: "Evaluation") -> list[str]:
    """Returns what was not measured, each with the reason."""
    missing = []
    if evaluation.new_new is None:
        missing.append("new/new: there are no new vectors of the gallery, or not of the queries")
    if evaluation.independent is None:
        missing.append(
            "P-scores and the share of the possible gain: no vectors of an independent model"
        )
    return [
        *missing,
        "live traffic: these are labelled queries, which may differ from those of users",
        "an approximate index: all searches here are exact",
    ]
