"""What `print` and `nobackfill evaluate` show of the judgements of a person."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from nobackfill.core.numbers import count, listed, maybe
from nobackfill.core.page import Page, Section, Table
from nobackfill.evaluation.overview import pair_name
from nobackfill.evaluation.verdict import METRIC_NAMES

if TYPE_CHECKING:
    from nobackfill.evaluation.judgements import Judged


def judged_page(
    judged: "Judged", *, title: str = "Which results does a person prefer?", verdict: str = ""
) -> Page:
    """Makes the page: the verdict of a person's judgements.

    Args:
        judged: Result of `judge`.
        title: Title of the page.
        verdict: Word for the verdict in the command's output; by default the verdict itself.
    """
    summary, preference = judged.summary(), judged.preference
    rows = [[name, f"{getattr(preference, name):,}"] for name in ("better", "worse", "equal")]
    columns = ["new results", "independent queries"]
    tables = [Table(columns, rows, frozenset(columns[1:]))]
    if judged.results:
        tables.append(metrics_table(judged))
    return Page(
        title,
        summary=[preference_sentence(summary["preference"]), *metric_sentence(judged)],
        verdict=verdict or judged.verdict,
        sections=[Section("What the person judged", "", tables)],
        not_measured=["results further down than those that were shown"],
        notes=judged.notes,
    )


def metrics_table(judged: "Judged") -> Table:
    """Returns the metrics that decide, over the marked results, by pair of models."""
    metrics = judged.summary()["metrics"]
    columns = ["query/gallery", *(METRIC_NAMES.get(name, name) for name in judged.changes)]
    rows = [
        [pair_name(pair), *(maybe(values.get(name), digits=2) for name in judged.changes)]
        for pair, values in metrics.items()
    ]
    return Table(columns, rows, frozenset(columns[1:]))


def preference_sentence(preference: Mapping[str, Any]) -> str:
    """Returns which results are preferred, and how surely.

    Example:
        >>> preference_sentence({"better": 3, "worse": 1, "equal": 0, "low": None, "groups": 4})
        'New results are better for 3 independent queries, worse for 1 and equal for 0.'
    """
    better = count(preference["better"], "independent query", "independent queries")
    sentence = (
        f"New results are better for {better}, worse for {preference['worse']:,} and equal for "
        f"{preference['equal']:,}"
    )
    if preference["low"] is None:
        return sentence + "."
    share, low, high = (f"{100 * preference[key]:.0f}" for key in ("share_better", "low", "high"))
    return (
        f"{sentence}. Of the unequal ones, {share} % are better (95 % interval {low} to {high} %, "
        f"which must exclude 50 %)."
    )


def metric_sentence(judged: "Judged") -> list[str]:
    """Returns how many queries have marked results, and what their metrics do."""
    marked = judged.counts["marked"]
    if not marked:
        return ["No result was marked as relevant, so there are no metrics."]
    falls = [name for name, change in judged.changes.items() if change.high < 0]
    rises = [name for name, change in judged.changes.items() if change.low > 0]
    words = [
        f"{listed([METRIC_NAMES.get(name, name) for name in names])} surely {verb}"
        f"{'s' if len(names) == 1 else ''}"
        for names, verb in ((rises, "rise"), (falls, "fall"))
        if names
    ]
    change = " and ".join(words) if words else "no metric surely changes"
    return [f"Over the marked results of {count(marked, 'query', 'queries')}, {change}."]
