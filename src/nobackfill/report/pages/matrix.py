"""The page of a compatibility matrix: which model can search whose gallery."""

import numpy as np

from nobackfill.core.page import Figure, Page, Section
from nobackfill.evaluation import matrix_overview
from nobackfill.evaluation.matrix import CompatibilityMatrix
from nobackfill.evaluation.matrix_overview import TITLE
from nobackfill.report.charts import heat_map


def matrix_page(matrix: CompatibilityMatrix) -> Page:
    """The page that `print` shows, with a figure."""
    return matrix_overview.matrix_page(matrix, figures=[matrix_figure(matrix)])


def matrix_section(matrix: CompatibilityMatrix, title: str = TITLE) -> Section:
    """The mAP of every model's queries on every model's gallery, as a table and a figure."""
    return matrix_overview.matrix_section(matrix, title, figures=[matrix_figure(matrix)])


def matrix_figure(matrix: CompatibilityMatrix) -> Figure:
    """The mAP of every model's queries on every model's gallery, as a heat map."""
    names = matrix.names
    words = "; ".join(
        f"queries by {query}: "
        + ", ".join(
            f"{100 * value:.1f} on {gallery}"
            for gallery, value in zip(names, row, strict=True)
            if value is not None
        )
        for query, row in zip(names, matrix.map, strict=True)
    )
    return Figure(lambda: _draw(matrix), "mAP in percent, query by gallery", f"{words}.")


def _draw(matrix: CompatibilityMatrix) -> str:
    values = [[np.nan if value is None else value for value in row] for row in matrix.map]
    return heat_map(np.array(values), matrix.names, matrix.names)
