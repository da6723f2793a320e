"""Two files without labels: how far their rankings agree, and queries for a person to judge."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from nobackfill.core.numbers import count, out_of, percent
from nobackfill.core.page import Figure, JudgedItem, JudgedQuery, JudgingSheet, Page, Section, Table
from nobackfill.evaluation.agreement import NO_LABELS, SHOWN, Agreement, Change
from nobackfill.evaluation.judgements import Judged
from nobackfill.evaluation.overview import metrics_table
from nobackfill.report.charts import step_curves
from nobackfill.report.thumbnails import Show, common_folder, short_id, shorten

PAIRS = {
    "old_old": "old/old",
    "new_old": "new/old",
    "new_new": "new/new",
    "two_stage": "second stage",
}
TABLED, SIDE, LONGEST = 4, 160, 300  # changes in a table; pixels and characters of a judged item
BINS = 60


def agreement_page(
    agreement: Agreement,
    *,
    title: str,
    head: str = "",
    verdict: str = "undecided",
    judging: JudgingSheet | None = None,
) -> Page:
    """How much rankings change, and that their quality was not measured.

    Args:
        agreement: Result of a comparison.
        title: Title of the page.
        head: Name of the map by which new queries search the old gallery, if one was fitted.
        verdict: How the command calls a quality that it does not know.
        judging: Queries for a person to judge, in place of the table of changed results.
    """
    sections = [overlap_section(agreement, head), scores_section(agreement)]
    if judging is None and "new_old" in agreement.rankings:
        sections.append(changes_section(agreement))
    queries = out_of(len(agreement.query_ids), agreement.num_asked)
    return Page(
        title,
        summary=[
            "Quality was not measured: there are no labels, pairs or groups.",
            overlap_sentence(agreement),
            remedy(agreement, judging),
            f"({queries} queries, {len(agreement.gallery_ids):,} gallery items)",
        ],
        verdict=verdict,
        sections=sections,
        not_measured=[NO_LABELS],
        notes=agreement.notes,
        judging=judging,
    )


def overlap_sentence(agreement: Agreement) -> str:
    """The overlap at the largest of the small depths, and the share of changed queries."""
    k = min(agreement.depths[-1], 10)
    shares = {pair: shares[k] for pair, shares in agreement.overlaps().items()}
    words = {
        "new_old": "on the old gallery",
        "new_new": "after a full backfill",
    }
    overlaps = [
        f"{percent(shares[pair])} of the old top {k} {where}"
        for pair, where in words.items()
        if pair in shares
    ]
    sentence = f"New queries find {' and '.join(overlaps)}." if overlaps else ""
    if "new_old" in agreement.rankings:
        changed = percent(float(agreement.is_changed.mean()))
        sentence += f" The first {SHOWN} results change for {changed} of the queries."
    return sentence


def remedy(agreement: Agreement, judging: JudgingSheet | None) -> str:
    """What gives a verdict: labels, pairs, or a person who judges."""
    if judging is not None:
        return "For a verdict, judge the queries below."
    ways = "name a column of labels (--label) or a file of pairs (--pairs)"
    is_changed = "new_old" in agreement.rankings and agreement.is_changed.any()
    return f"For a verdict, {ways}" + (
        ", or judge changed queries on a page (--report page.html)." if is_changed else "."
    )


def overlap_section(agreement: Agreement, head: str = "") -> Section:
    """The mean overlap of the first results, by pair and depth."""
    columns = ["results", *(f"top {k}" for k in agreement.depths)]
    names = {
        "new_old": "new/old and old/old",
        "new_new": "new/new and old/old",
        "two_stage": "second stage and new/old",
    }
    rows = [
        [names[pair], *(percent(share) for share in shares.values())]
        for pair, shares in agreement.overlaps().items()
    ]
    text = "Mean share of the first results that both have in common."
    if head:
        text += (
            f" New queries search the old gallery by the closed form {head}, which was fitted to "
            f"other items without labels; a second stage ranks its results again by new vectors."
        )
    return Section("How far rankings agree", text, [Table(columns, rows, frozenset(columns[1:]))])


def scores_section(agreement: Agreement) -> Section:
    """The distribution of the best score of each query."""
    summary = agreement.summary()
    columns = ["query/gallery", "5 %", "median", "95 %", "below the old 5 %"]
    rows = [
        [
            PAIRS[pair],
            *(f"{spread[key]:.3f}" for key in ("p5", "p50", "p95")),
            percent(summary["below_old_p5"][pair]),
        ]
        for pair, spread in summary["best_score"].items()
    ]
    best = {pair: ranking.scores[:, 0].numpy() for pair, ranking in agreement.rankings.items()}
    every = np.concatenate(list(best.values()))
    edges = np.linspace(min(0.0, float(every.min())), max(1.0, float(every.max())), BINS + 1)
    counts = {PAIRS[pair]: np.histogram(values, edges)[0] for pair, values in best.items()}
    medians = [f"{row[0]} {row[2]}" for row in rows]
    return Section(
        "Best score of each query",
        "Cosines. The last column is the share of queries that a threshold refuses which refuses "
        "5 % today.",
        [Table(columns, rows, frozenset(columns[1:]))],
        [
            Figure(
                lambda: step_curves(counts, edges, label="cosine of the best result"),
                "Best score of each query",
                f"Medians: {', '.join(medians)}.",
            )
        ],
    )


def changes_section(agreement: Agreement) -> Section:
    """A few changed queries with their first results."""
    changes = agreement.changes(TABLED)
    rows = [
        [short_id(change.query), *(cited(ids) for ids in (change.before, change.after))]
        for change in changes
    ]
    changed = count(int(agreement.is_changed.sum()), "query", "queries")
    if not rows:
        return Section("Changed results", f"No query changes its first {SHOWN} results.")
    text = f"A random sample of {changed} that change; JSON has more, with scores."
    return Section("Changed results", text, [Table(["query", "before", "after"], rows)])


def cited(ids: Sequence[Any]) -> str:
    """The first results of a query, by id.

    Example:
        >>> cited([7, "b", 3, 4])
        '7, b, 3 …'
    """
    return ", ".join(map(short_id, ids[:3])) + (" …" if len(ids) > 3 else "")


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
    ids = list(dict.fromkeys(item for change in changes for item in items_of(change)))
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


def items_of(change: Change) -> list[Any]:
    """The ids of a query and of its results."""
    return [change.query, *change.before, *change.after]


def judged_item(item: Any, shown: str, folder: str) -> JudgedItem:
    """An item with its picture (a data URI) or its text."""
    label = short_id(item, folder)
    if shown.startswith("data:image/"):
        return JudgedItem(str(item), label, picture=shown)
    return JudgedItem(str(item), label, text=shorten(shown, LONGEST))


def judged_page(judged: Judged, *, title: str, verdict: str) -> Page:
    """The verdict of a person's judgements.

    Args:
        judged: Result of `judge`.
        title: Title of the page.
        verdict: How the command calls it.
    """
    summary, preference = judged.summary(), judged.preference
    rows = [[name, f"{getattr(preference, name):,}"] for name in ("better", "worse", "equal")]
    tables = [Table(["new results", "queries"], rows, frozenset({"queries"}))]
    if judged.results:
        tables.append(metrics_table(summary))
    return Page(
        title,
        summary=[preference_sentence(summary["preference"]), *metric_sentence(judged)],
        verdict=verdict,
        sections=[Section("What the person judged", "", tables)],
        not_measured=["results further down than those that were shown"],
        notes=judged.notes,
    )


def preference_sentence(preference: Mapping[str, Any]) -> str:
    """Which results are preferred, and how surely.

    Example:
        >>> preference_sentence({"better": 3, "worse": 1, "equal": 0, "low": None, "groups": 4})
        'New results are better for 3 queries, worse for 1 and equal for 0.'
    """
    sentence = (
        f"New results are better for {count(preference['better'], 'query', 'queries')}, worse for "
        f"{preference['worse']:,} and equal for {preference['equal']:,}"
    )
    if preference["low"] is None:
        return sentence + "."
    share, low, high = (f"{100 * preference[key]:.0f}" for key in ("share_better", "low", "high"))
    return (
        f"{sentence}: of the unequal ones, {share} % are better (95 % interval {low} to {high}; "
        f"it decides if it does not contain 50)."
    )


def metric_sentence(judged: Judged) -> list[str]:
    """How many queries have marked results, and what their metrics do."""
    marked = judged.counts["marked"]
    if not marked:
        return ["No result was marked as relevant, so there are no metrics."]
    falls = [name for name, change in judged.changes.items() if change.high < 0]
    rises = [name for name, change in judged.changes.items() if change.low > 0]
    words = [
        f"{', '.join(names)} surely {verb}"
        for names, verb in ((rises, "rises"), (falls, "falls"))
        if names
    ]
    change = " and ".join(words) if words else "no metric surely changes"
    return [f"Over the marked results of {count(marked, 'query', 'queries')}, {change}."]
