"""The page that `print` and a notebook show for vectors."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from nobackfill.core.page import Page, Section, Table
from nobackfill.core.short_names import shorten

if TYPE_CHECKING:
    from nobackfill.vectors.vectors import Vectors

ROWS = 5  # first items that are shown
WIDTH = 80  # of a terminal, which shows the columns that fit
NUMBERS = 3  # first numbers of a vector
LONGEST = 40  # characters of a value


def vectors_page(vectors: "Vectors") -> Page:
    """The size of the vectors, and a table of the first items."""
    columns = {
        "id": vectors.ids,
        **({} if vectors.labels is None else {"label": vectors.labels}),
        **vectors.columns,
    }
    starts = vectors.vectors[:ROWS, :NUMBERS].tolist()
    more = ", …" if vectors.dim > NUMBERS else ""
    rows = [
        [
            *(
                shorten(str(values[row : row + 1].tolist()[0]), LONGEST)
                for values in columns.values()
            ),
            ", ".join(f"{number:.3g}" for number in start) + more,
        ]
        for row, start in enumerate(starts)
    ]
    hidden = len(vectors) - len(rows)
    names = [*columns, "vector"]
    table = Table(names, rows, details=frozenset(hidden_columns(names, rows)))
    text = f"… and {hidden:,} more" if hidden else ""
    return Page("Vectors", [f"{vectors!r}"], [Section("", text, [table])])


def hidden_columns(names: Sequence[str], rows: Sequence[Sequence[str]]) -> Sequence[str]:
    """Columns between the first and the last that do not fit into the terminal beside them.

    Example:
        >>> hidden_columns(["id", "camera", "text", "vector"], [["7", "1", "x" * 70, "0.1"]])
        ['text']
    """
    first, *widths, last = (max(map(len, cells)) + 2 for cells in zip(names, *rows, strict=True))
    room, hidden = WIDTH - first - last, []
    for name, width in zip(names[1:-1], widths, strict=True):
        if width <= room:
            room -= width
        else:
            hidden.append(name)
    return hidden
