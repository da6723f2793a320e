"""Query by query: the number of changes on the day of the upgrade, and the largest ones."""

from collections.abc import Mapping, Sequence
from typing import Any

from nobackfill.core.numbers import percent
from nobackfill.core.page import Section, Table
from nobackfill.core.short_names import common_folder, short_id
from nobackfill.evaluation.evaluate import Evaluation
from nobackfill.evaluation.findings import Findings
from nobackfill.evaluation.query_changes import Flipped
from nobackfill.report.thumbnails import Show, as_cell

QUERIES, FOUND = 12, 4  # queries shown, and results of each; JSON has more


def queries_section(findings: Findings, show: Show) -> Section:
    """The number of queries that lose or gain a hit, and those that change most.

    Args:
        findings: Result of `findings_of`.
        show: Function that makes pictures or texts of items.
    """
    evaluation = findings.evaluation
    lost, won = findings.lost[:QUERIES], findings.won[:QUERIES]
    ids = {
        item
        for query in (*lost, *won)
        for item in (query.query, *query.top_before[:FOUND], *query.top_after[:FOUND])
    }
    shown, folder = show(sorted(ids, key=str)), common_folder(sorted(ids, key=str))
    changes = precision_changes(evaluation)
    tables = [flips_table(evaluation)]
    for caption, queries, head, ranks in (
        (
            "Queries that lose their first hit, the worst first",
            lost,
            "hit is at",
            [query.rank_after for query in lost],
        ),
        (
            "Queries that gain one, the best first",
            won,
            "hit was at",
            [query.rank_before for query in won],
        ),
    ):
        numbers = {
            "Δ AP": [f"{100 * changes[query.query]:+.1f}" for query in queries],
            head: [f"{rank:,}" if rank else "–" for rank in ranks],
        }
        if queries:
            tables.append(_queries_table(caption, queries, numbers, shown, folder=folder))
    left_out = f" The ids below begin with {folder}, which is left out." if folder else ""
    return Section(
        "Query by query",
        f"Of {int(evaluation.counted.sum()):,} queries that have a relevant item. ✓ and ✗ mark "
        f"relevant and irrelevant results; Δ AP is the change of a query's average precision, in "
        f"points. The JSON file beside this page lists more queries.{left_out}",
        tables=tables,
    )


def flips_table(evaluation: Evaluation) -> Table:
    """The number of queries that lose and gain a hit among the first results."""
    counted = int(evaluation.counted.sum())
    columns = ["hit in the top", "lose it", "queries", "gain one", "of them"]
    rows = []
    for k in (1, 5, 10):
        flips = evaluation.flips(k)
        shares = (flips.negative, flips.positive)
        cells = [(percent(share), f"{round(counted * share):,}") for share in shares]
        rows.append([str(k), *cells[0], *cells[1]])
    return Table(columns, rows, frozenset(columns), caption="Negative and positive flips")


def precision_changes(evaluation: Evaluation) -> dict[Any, float]:
    """Average precision of new/old minus that of old/old, by the id of the query."""
    gain = evaluation.new_old.average_precision - evaluation.old_old.average_precision
    return dict(zip(evaluation.query_ids.tolist(), gain.tolist(), strict=True))


def _queries_table(
    caption: str,
    queries: Sequence[Flipped],
    numbers: Mapping[str, Sequence[str]],
    shown: Mapping[Any, str],
    *,
    folder: str,
) -> Table:
    """Queries with their numbers and their results before and after."""
    rows = []
    for place, query in enumerate(queries):
        picture = [as_cell([query.query], shown, folder=folder)] if shown else []
        before, after = (
            as_cell(ids[:FOUND], shown, right[:FOUND], folder=folder)
            for ids, right in (
                (query.top_before, query.right_before),
                (query.top_after, query.right_after),
            )
        )
        values = (column[place] for column in numbers.values())
        rows.append([*picture, short_id(query.query, folder), *values, before, after])
    heads = ["query", "id"] if shown else ["query"]
    columns = [*heads, *numbers, "found before", "found after"]
    return Table(columns, rows, frozenset(numbers), caption=caption)
