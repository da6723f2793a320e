"""Measured results beside those that recipes expect, such as the tables of a paper."""

from collections.abc import Mapping, Sequence
from statistics import mean
from typing import Any

from nobackfill.core.page import Section, Table
from nobackfill.report.seeds import Outcome

TITLE = "Measured beside published"
FRACTIONS = ("AC", "AM")  # in the unit of the recipe; all others are in percent


def expected_of(
    outcomes: Sequence[Outcome], alone: Mapping[str, Mapping[str, Any]]
) -> dict[str, dict[str, Any]]:
    """Comparisons by kind of run, with the mean over seeds as the measured number.

    Args:
        outcomes: Result of each run.
        alone: Comparisons of models without an old one, by name; they come first.
    """
    kinds: dict[str, list[Mapping[str, Any]]] = {}
    for outcome in outcomes:
        if expected := outcome.summary.get("expected"):
            kinds.setdefault(outcome.kind, []).append(expected)
    comparisons = {name: dict(expected) for name, expected in alone.items()}
    for kind, seeds in kinds.items():
        rows = []
        for place, row in enumerate(seeds[0]["rows"]):
            values = [seed["rows"][place]["measured"] for seed in seeds]
            known = None if None in values else mean(values)
            difference = None if known is None else known - row["expected"]
            rows.append({**row, "measured": known, "difference": difference})
        comparisons[kind] = {"source": seeds[0]["source"], "rows": rows}
    return comparisons


def expected_section(expected: Mapping[str, Mapping[str, Any]]) -> list[Section]:
    """A table for each test, a row for each run; no section if nothing is expected.

    Args:
        expected: Comparisons (`source`, `rows`) by the name of the run.
    """
    expected = {name: part for name, part in expected.items() if part and part["rows"]}
    if not expected:
        return []
    sources = list(dict.fromkeys(part["source"] for part in expected.values()))
    if len(expected) == 1:
        (part,) = expected.values()
        return [Section(TITLE, _text(sources), tables=[expected_table(part["rows"])])]

    # One table for each test; one column for each number, ours and the published one.
    rows = [(run, row) for run, part in expected.items() for row in part["rows"]]
    tables = []
    for test in dict.fromkeys(row["test"] for _, row in rows):
        own = [(run, row) for run, row in rows if row["test"] == test]
        names = list(dict.fromkeys(row["name"] for _, row in own))
        cells = {(run, row["name"]): row for run, row in own}
        columns = [column for name in names for column in (name, f"{name}, published")]
        body = [
            [run, *(cell for name in names for cell in _pair(cells.get((run, name))))]
            for run in dict.fromkeys(run for run, _ in own)
        ]
        tables.append(Table(["run", *columns], body, frozenset(columns), caption=test))
    return [Section(TITLE, _text(sources), tables=tables)]


def expected_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """The comparisons of one run, a row for each number."""
    columns = ["", "measured", "published", "difference"]
    body = [
        [
            ", ".join(filter(None, (row["name"], row["test"]))),
            *_pair(row),
            "–" if row["difference"] is None else f"{row['difference']:+.{_digits(row)}f}",
        ]
        for row in rows
    ]
    return Table(columns, body, frozenset(columns[1:]))


def _pair(row: Mapping[str, Any] | None) -> tuple[str, str]:
    """The measured and the published number; dashes for what is missing."""
    if row is None:
        return "–", "–"
    digits = _digits(row)
    measured = "–" if row["measured"] is None else f"{row['measured']:.{digits}f}"
    return measured, f"{row['expected']:.{digits}f}"


def _digits(row: Mapping[str, Any]) -> int:
    """Number of digits: fractions have more than percent."""
    return 3 if row["name"].startswith(FRACTIONS) else 2


def _text(sources: Sequence[str]) -> str:
    """The sources of the published numbers, and their unit."""
    return f"Published numbers: {'; '.join(sources)}. AC and AM are fractions, all others percent."
