"""Query by query: how many change on the day of the upgrade, and which change most."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from nobackfill.evaluation.evaluate import Evaluation
from nobackfill.evaluation.findings import Findings
from nobackfill.evaluation.query_changes import Flipped
from nobackfill.report.numbers import percent
from nobackfill.report.page import Section, Table
from nobackfill.report.thumbnails import Show, as_cell, common_folder, short_id

QUERIES, FOUND = 12, 4  # queries that are shown, and what each found; JSON has more


def queries_section(findings: Findings, show: Show) -> Section:
    """How many queries change, and which change most.

    Args:
        findings: As `findings_of` returns them.
        show: Makes pictures or texts of items.
    """
    evaluation = findings.evaluation
    lost, won = findings.lost[:QUERIES], findings.won[:QUERIES]
    ids = sorted({item for one in (*lost, *won) for item in _items(one)}, key=str)
    shown, folder, change = show(ids), common_folder(ids), precision_changes(evaluation)
    tables = [flips_table(evaluation)]
    for caption, flipped, head, ranks in (
        (
            "Queries that lose their first hit, the worst first",
            lost,
            "hit is at",
            [one.rank_after for one in lost],
        ),
        (
            "Queries that win one, the best first",
            won,
            "hit was at",
            [one.rank_before for one in won],
        ),
    ):
        columns = {
            "Δ AP": [f"{100 * change[one.query]:+.1f}" for one in flipped],
            head: [f"{rank:,}" if rank else "–" for rank in ranks],
        }
        if flipped:
            tables.append(_flipped_table(caption, flipped, columns, shown, folder=folder))
    left_out = f" The ids below begin with {folder}, which is left out." if folder else ""
    return Section(
        "Query by query",
        f"Of {_counted(evaluation):,} queries that have something to find. ✓ and ✗ tell what was "
        f"looked for; Δ AP is the change of a query's average precision, in points. The JSON file "
        f"beside this page lists more of them.{left_out}",
        tables=tables,
    )


def flips_table(evaluation: Evaluation) -> Table:
    """How many queries lose, and win, their hit among the first few."""
    counted = _counted(evaluation)
    columns = ["hit in the top", "lose it", "queries", "win one", "of them"]
    return Table(
        columns,
        [
            [
                str(one.k),
                percent(one.negative),
                f"{round(counted * one.negative):,}",
                percent(one.positive),
                f"{round(counted * one.positive):,}",
            ]
            for one in map(evaluation.flips, (1, 5, 10))
        ],
        frozenset(columns),
        caption="Negative and positive flips",
    )


def precision_changes(evaluation: Evaluation) -> dict[Any, float]:
    """By the id of each query the average precision of new/old less that of old/old."""
    gain = evaluation.new_old.average_precision - evaluation.old_old.average_precision
    return dict(zip(evaluation.query_ids.tolist(), gain.tolist(), strict=True))


def _counted(evaluation: Evaluation) -> int:
    """How many queries have something to find."""
    return int(evaluation.counted.sum())


def _items(one: Flipped) -> Iterator[Any]:
    yield one.query
    yield from one.top_before[:FOUND]
    yield from one.top_after[:FOUND]


def _flipped_table(
    caption: str,
    flipped: Sequence[Flipped],
    numbers: Mapping[str, Sequence[str]],
    shown: Mapping[Any, str],
    *,
    folder: str,
) -> Table:
    """Queries with some numbers of each, and what they found before and after."""
    has_looks = bool(shown)
    rows = [
        [
            *([as_cell([one.query], shown, folder=folder)] if has_looks else []),
            short_id(one.query, folder),
            *(column[place] for column in numbers.values()),
            as_cell(one.top_before[:FOUND], shown, one.right_before[:FOUND], folder=folder),
            as_cell(one.top_after[:FOUND], shown, one.right_after[:FOUND], folder=folder),
        ]
        for place, one in enumerate(flipped)
    ]
    asked = ["query", "id"] if has_looks else ["query"]
    columns = [*asked, *numbers, "found before", "found after"]
    return Table(columns, rows, frozenset(numbers), caption=caption)
