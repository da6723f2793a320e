"""What `print` and a notebook show of vectors."""

from typing import TYPE_CHECKING, Any

from nobackfill.core.page import Page, Section, Table

if TYPE_CHECKING:
    from nobackfill.vectors.vectors import Vectors

ROWS = 5  # first items that are shown
COLUMNS = 4  # columns that the terminal shows
NUMBERS = 3  # first numbers of a vector
LONGEST = 40  # characters of a value


def vectors_page(vectors: "Vectors") -> Page:
    """The size of the vectors, and a table of the first items."""
    names = [*([] if vectors.labels is None else ["label"]), *vectors.columns]
    columns = {
        "id": vectors.ids,
        **({} if vectors.labels is None else {"label": vectors.labels}),
        **vectors.columns,
    }
    starts = vectors.vectors[:ROWS, :NUMBERS].tolist()
    more = ", …" if vectors.dim > NUMBERS else ""
    rows = [
        [
            *(shortened(values[row].item()) for values in columns.values()),
            ", ".join(f"{number:.3g}" for number in start) + more,
        ]
        for row, start in enumerate(starts)
    ]
    hidden = len(vectors) - len(rows)
    table = Table([*columns, "vector"], rows, details=frozenset(names[COLUMNS:]))
    text = f"… and {hidden:,} more" if hidden else ""
    return Page("Vectors", [f"{vectors!r}"], [Section("", text, [table])])


def shortened(value: Any) -> str:
    """A value as text, without its end if that is long.

    Example:
        >>> shortened(7), shortened("x" * 50)
        ('7', 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx…')
    """
    text = " ".join(str(value).split())
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
