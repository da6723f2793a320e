"""The report of a sequence of upgrades: the compatibility matrix of its models."""

from collections.abc import Sequence

from nobackfill.core.page import Page, Section, Table
from nobackfill.evaluation.matrix import CompatibilityMatrix
from nobackfill.evaluation.matrix_overview import matrix_conclusion, upgrades_section
from nobackfill.report.pages.expected import expected_section
from nobackfill.report.pages.matrix import matrix_section
from nobackfill.training.sequence import SequenceSummary


def sequence_page(summary: SequenceSummary, *, title: str) -> Page:
    """The matrix of a sequence, its upgrades, and the matrix of each test."""
    names = [f"{model.run} {model.method}" for model in summary.models]
    matrix = _square(names, summary.matrix)
    return Page(
        title=title,
        summary=matrix_conclusion(matrix),
        sections=[
            matrix_section(matrix),
            upgrades_section(matrix),
            *after_section(summary),
            *expected_section({title: summary.expected}),
            *(
                matrix_section(_square(names, part), f"On {test}")
                for test, part in summary.tests.items()
            ),
        ],
        not_measured=[
            "how sure the differences are: a sequence is compared by its means",
            "galleries by models later than the query's",
        ],
    )


def after_section(summary: SequenceSummary) -> list[Section]:
    """AC and AM after each upgrade, and the P-scores if there are independent models."""
    if not summary.after:
        return []
    tables = [
        Table(
            ["upgrades", "AC", "AM"],
            [[str(a["upgrades"]), f"{a['ac']:.2f}", f"{a['am']:.3f}"] for a in summary.after],
            frozenset(["upgrades", "AC", "AM"]),
        )
    ]
    text = "AC: share of upgrades that are compatible. AM: mean of the matrix."
    if summary.p_scores:
        columns = ["upgrade", "P_up", "P_comp", "P_1"]
        rows = [
            [f"{s['old']} → {s['new']}", *(f"{s[key]:.2f}" for key in ("p_up", "p_comp", "p_1"))]
            for s in summary.p_scores
        ]
        tables.append(Table(columns, rows, frozenset(columns[1:])))
        text += (
            " P-scores compare with the independent models of both steps, as in the paper, and are "
            "means over the tests."
        )
    return [Section("After each upgrade", text, tables=tables)]


def _square(names: Sequence[str], triangle: Sequence[Sequence[float]]) -> CompatibilityMatrix:
    """The matrix of a lower triangle."""
    return CompatibilityMatrix(
        names, [[*row, *[None] * (len(names) - len(row))] for row in triangle]
    )
