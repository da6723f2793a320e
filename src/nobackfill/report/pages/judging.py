"""Two files without labels: how far their rankings agree, and queries for a person to judge."""

from dataclasses import replace
from typing import Any

import numpy as np

from nobackfill.core.page import Figure, JudgedItem, JudgedQuery, JudgingSheet, Page
from nobackfill.core.short_names import common_folder, short_id, shorten
from nobackfill.evaluation.agreement import Agreement
from nobackfill.evaluation.agreement_overview import PAIRS, agreement_page
from nobackfill.report.charts import step_curves
from nobackfill.report.thumbnails import Show

SIDE, LONGEST = 160, 300  # pixels and characters of a judged item
BINS = 60


def unlabelled_page(
    agreement: Agreement, *, title: str, verdict: str = "undecided", judging: JudgingSheet | None
) -> Page:
    """The page of a comparison, with a figure of scores and queries for a person to judge.

    Arguments are those of `agreement_page`.
    """
    page = agreement_page(agreement, title=title, verdict=verdict, judging=judging)
    rankings, *others = page.sections
    return replace(page, sections=[replace(rankings, figures=[scores_figure(agreement)]), *others])


def scores_figure(agreement: Agreement) -> Figure:
    """The distribution of the best score of each query."""
    best = {
        PAIRS[pair]: ranking.scores[:, 0].numpy() for pair, ranking in agreement.rankings.items()
    }
    every = np.concatenate(list(best.values()))
    edges = np.linspace(min(0.0, float(every.min())), max(1.0, float(every.max())), BINS + 1)
    counts = {pair: np.histogram(values, edges)[0] for pair, values in best.items()}
    medians = (f"{pair} {np.median(values):.3f}" for pair, values in best.items())
    return Figure(
        lambda: step_curves(counts, edges, label="cosine of the best result"),
        "Best score of each query",
        f"Medians: {', '.join(medians)}.",
    )


def judging_sheet(agreement: Agreement, show: Show, *, file_name: str) -> JudgingSheet | None:
    """Changed queries for a person to judge; None if no query changes.

    Args:
        agreement: Result of a comparison.
        show: Function that makes pictures or texts of items.
        file_name: Name of the file of answers.
    """
    changes = agreement.changes()
    if not changes:
        return None
    ids = list(dict.fromkeys(item for change in changes for item in change.items))
    number = {item: place for place, item in enumerate(ids)}
    is_swapped = np.random.default_rng(agreement.seed).random(len(changes)) < 0.5
    queries = [
        JudgedQuery(
            number[change.query],
            [number[item] for item in change.before],
            [number[item] for item in change.after],
            bool(swapped),
        )
        for change, swapped in zip(changes, is_swapped, strict=True)
    ]
    shown, folder = show(ids), common_folder(ids)
    items = [judged_item(item, shown.get(item, ""), folder) for item in ids]
    return JudgingSheet(queries, items, int(agreement.is_changed.sum()), file_name)


def judged_item(item: Any, shown: str, folder: str) -> JudgedItem:
    """An item with its picture (a data URI) or its text."""
    label = short_id(item, folder)
    if shown.startswith("data:image/"):
        return JudgedItem(str(item), label, picture=shown)
    return JudgedItem(str(item), label, text=shorten(shown, LONGEST))
