"""The report of a sequence of upgrades: the compatibility matrix of its models."""

from collections.abc import Sequence

from nobackfill.evaluation.matrix import CompatibilityMatrix
from nobackfill.evaluation.matrix_overview import matrix_conclusion, upgrades_section
from nobackfill.report.page import Page
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


def _square(names: Sequence[str], triangle: Sequence[Sequence[float]]) -> CompatibilityMatrix:
    """The matrix of a lower triangle."""
    return CompatibilityMatrix(
        names, [[*row, *[None] * (len(names) - len(row))] for row in triangle]
    )
