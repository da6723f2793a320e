"""What `print` and `nobackfill evaluate` show of two files without labels."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nobackfill.core.numbers import count, out_of, percent
from nobackfill.core.page import JudgingSheet, Page, Section, Table
from nobackfill.core.short_names import common_folder, short_id

if TYPE_CHECKING:
    from nobackfill.evaluation.agreement import Agreement

NO_LABELS = "quality: without labels, pairs or groups nobody knows which results are right"
PAIRS = {
    "old_old": "old/old",
    "new_old": "new/old",
    "new_new": "new/new",
    "two_stage": "second stage",
}
TABLED, CELL = 3, 24  # changed queries in a table; characters of its cells


def agreement_page(
    agreement: "Agreement",
    *,
    title: str = "How far do the results of old and new queries agree?",
    verdict: str = "undecided",
    judging: JudgingSheet | None = None,
    report: Path | None = None,
) -> Page:
    """Makes the page: how much rankings change, and that quality was not measured.

    Args:
        agreement: Result of a comparison.
        title: Title of the page.
        verdict: Word for the verdict in the command's output.
        judging: Queries for a person to judge, in place of the table of changed results.
        report: Path of the page with these queries, if it is another.
    """
    sections = [rankings_section(agreement)]
    if judging is None and "new_old" in agreement.rankings:
        sections.append(changes_section(agreement))
    queries = out_of(len(agreement.query_ids), agreement.num_asked)
    return Page(
        title,
        summary=[
            "Quality was not measured: there are no labels, pairs or groups.",
            overlap_sentence(agreement),
            remedy(agreement, judging, report),
            f"({queries} queries, {len(agreement.gallery_ids):,} gallery items)",
        ],
        verdict=verdict,
        sections=sections,
        not_measured=[NO_LABELS],
        notes=agreement.notes,
        judging=judging,
    )


def overlap_sentence(agreement: "Agreement") -> str:
    """Returns the overlap at the largest of the small depths, and the share of changed queries."""
    from nobackfill.evaluation.agreement import SHOWN

    k = min(agreement.depths[-1], 10)
    shares = {pair: shares[k] for pair, shares in agreement.overlaps().items()}
    words = {
        "new_old": "on the old gallery",
        "new_new": "after a full backfill",
    }
    overlaps = [
        f"{percent(shares[pair])} {where}" for pair, where in words.items() if pair in shares
    ]
    sentence = f"Of the old top {k}, new queries find {' and '.join(overlaps)}." if overlaps else ""
    if "new_old" in agreement.rankings:
        changed = percent(float(agreement.is_changed.mean()))
        sentence += f" The first {SHOWN} change for {changed} of the queries."
    return sentence


def remedy(agreement: "Agreement", judging: JudgingSheet | None, report: Path | None) -> str:
    """What gives a verdict: labels, pairs, or a person who judges."""
    if judging is not None:
        return "For a verdict, judge the changed queries of the HTML page."
    is_changed = "new_old" in agreement.rankings and agreement.is_changed.any()
    if is_changed and report is not None:
        return f"For a verdict, judge the queries of {report}, and pass its answers by --pairs."
    ways = f"name a column of labels ({agreement.hint or '--label'}) or a file of pairs (--pairs)"
    return f"For a verdict, {ways}" + (
        ", or judge changed queries on a page (--report page.html)." if is_changed else "."
    )


def rankings_section(agreement: "Agreement") -> Section:
    """Returns the overlap of the first results, and the best scores, of each pair."""
    from nobackfill.evaluation.agreement import AGAINST

    summary, depths = agreement.summary(), agreement.depths
    tops = [f"top {k}" for k in depths]
    columns = ["query/gallery", "shares with", *tops, "score", "5 %", "95 %", "below"]
    rows = []
    for pair, spread in summary["best_score"].items():
        shares = summary["overlap"].get(pair)
        rows.append(
            [
                PAIRS[pair],
                PAIRS[AGAINST[pair]] if shares else "",
                *(percent(share) for share in (shares or {}).values()),
                *([""] * (0 if shares else len(depths))),
                *(f"{spread[key]:.3f}" for key in ("p50", "p5", "p95")),
                percent(summary["below_old_p5"][pair]),
            ]
        )
    text = (
        "top k: first results in common; score: median cosine of the best result; below: queries "
        "that a threshold refuses if it refuses 5 % today."
    )
    if "two_stage" in agreement.rankings:
        text += f" The second stage ranks the first {agreement.reranked} again by new vectors."
    table = Table(columns, rows, frozenset(columns[2:]), details=frozenset({"5 %", "95 %"}))
    return Section("How far rankings agree", text, [table])


def changes_section(agreement: "Agreement") -> Section:
    """Returns a few changed queries with their first results."""
    from nobackfill.evaluation.agreement import SHOWN

    changes = agreement.changes(TABLED)
    folder = common_folder([item for change in changes for item in change.items])
    rows = [
        [
            short_id(change.query, folder, CELL - 4),
            *(cited(ids, folder) for ids in (change.before, change.after)),
        ]
        for change in changes
    ]
    changed = count(int(agreement.is_changed.sum()), "changed query", "changed queries")
    if not rows:
        return Section("Changed results", f"No query changes its first {SHOWN} results.")
    title = f"{len(rows)} of {changed}, at random"
    return Section(title, "", [Table(["query", "before", "after"], rows)])


def cited(ids: Sequence[Any], folder: str = "") -> str:
    """Returns the first results of a query by id, as many as fit into a cell.

    Example:
        >>> cited([7, "b", 3, 4]), cited(["a" * 15, "b" * 15])
        ('7, b, 3 …', 'aaaaaaaaaaaaaaa …')
    """
    names = [short_id(item, folder, CELL) for item in ids[:3]]
    while len(names) > 1 and len(", ".join(names)) > CELL:
        names.pop()
    return ", ".join(names) + (" …" if len(ids) > len(names) else "")
