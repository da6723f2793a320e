"""The report of a sequence of upgrades: who can search whose gallery."""

from collections.abc import Sequence

import numpy as np

from nobackfill.report.charts import heat_map
from nobackfill.report.page import Figure, Page, Section, Table
from nobackfill.training.sequence import SequenceSummary


def sequence_page(summary: SequenceSummary, *, title: str) -> Page:
    """Returns the page of a sequence."""
    names = [f"{number} {model.method}" for number, model in enumerate(summary.models, start=1)]
    upgrades = [(j, i) for i in range(len(names)) for j in range(i)]
    matrix = summary.matrix
    good = sum(matrix[i][j] > matrix[j][j] for j, i in upgrades)
    return Page(
        title=title,
        summary=[
            f"{good} of {len(upgrades)} upgrades without backfill beat the model that they "
            f"replace (AC {summary.ac:.2f}); the mean over all pairs (AM) is "
            f"{100 * summary.am:.1f} percent mAP."
        ],
        sections=[
            matrix_section("Who can search whose gallery", names, matrix),
            upgrades_section(names, matrix, upgrades),
            *(matrix_section(f"On {test}", names, part) for test, part in summary.tests.items()),
        ],
        not_measured=[
            "how sure the differences are: a sequence is compared by its means",
            "galleries by models later than the query's",
        ],
    )


def matrix_section(title: str, names: Sequence[str], matrix: Sequence[Sequence[float]]) -> Section:
    """The mAP of every model's queries on its own gallery and on those before it."""
    whole = np.full((len(names), len(names)), np.nan)
    for i, row in enumerate(matrix):
        whole[i, : len(row)] = row
    said = "; ".join(
        f"{names[i]} on {names[j]}: {100 * value:.1f}"
        for i, row in enumerate(matrix)
        for j, value in enumerate(row)
    )
    return Section(
        title,
        "mAP in percent. The diagonal is each model on its own gallery; an upgrade is compatible "
        "where an entry beats the diagonal above it in its column.",
        figures=[Figure(heat_map(whole, names, names), title, f"{said}.")],
    )


def upgrades_section(
    names: Sequence[str],
    matrix: Sequence[Sequence[float]],
    upgrades: Sequence[tuple[int, int]],
) -> Section:
    """Every upgrade in a line."""
    columns = ["from", "to", "old/old", "new/old", "new/new", "compatible"]
    rows = [
        [
            names[j],
            names[i],
            *(f"{100 * value:.2f}" for value in (matrix[j][j], matrix[i][j], matrix[i][i])),
            "yes" if matrix[i][j] > matrix[j][j] else "no",
        ]
        for j, i in upgrades
    ]
    return Section(
        "Upgrade by upgrade",
        "mAP in percent; compatible by the means.",
        tables=[Table(columns, rows, frozenset(columns[2:-1]))],
    )
