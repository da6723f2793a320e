"""Results as HTML without a style of their own, for notebooks."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from nobackfill.core.page import Page, Table
from nobackfill.errors import ConfigError

if TYPE_CHECKING:
    from pandas import DataFrame


def page_html(page: Page) -> str:
    """The conclusion, the tables, what was not measured, and the notes of a page."""
    verdict = f"<b>{escape(page.verdict.capitalize())}:</b> " if page.verdict else ""
    parts = [f"<p>{verdict}{escape(' '.join(page.summary))}</p>"]
    for section in page.sections:
        if section.title and len(page.sections) > 1:
            parts.append(f"<p><b>{escape(section.title)}</b></p>")
        parts += [table_html(table) for table in section.tables]
        parts += [f"<p>{escape(line)}</p>" for line in section.text.splitlines()]
    if page.caveats:
        caveats = (f"<li>{escape(caveat)}</li>" for caveat in page.caveats)
        parts.append(f"<ul>{''.join(caveats)}</ul>")
    return "\n".join(parts)


def table_html(table: Table) -> str:
    """A table with all its columns.

    Example:
        >>> table_html(Table(["a"], [["<1>"]]))
        '<table><tr><th>a</th></tr><tr><td>&lt;1&gt;</td></tr></table>'
    """
    head = "".join(f"<th>{escape(name)}</th>" for name in table.columns)
    rows = (
        "".join(f"<td>{escape(cell)}</td>" for cell in row if isinstance(cell, str))
        for row in table.rows
    )
    caption = f"<caption>{escape(table.caption)}</caption>" if table.caption else ""
    return f"<table>{caption}<tr>{head}</tr>{''.join(f'<tr>{row}</tr>' for row in rows)}</table>"


def data_frame(
    values: Sequence[Mapping[str, Any]] | Mapping[str, Sequence[Any] | NDArray[Any]],
) -> "DataFrame":
    """Rows, or columns by name, as a DataFrame of pandas.

    Raises:
        ConfigError: If pandas is not installed.
    """
    try:
        from pandas import DataFrame
    except ImportError:
        raise ConfigError(
            "to_pandas() requires pandas, which is not installed. Run `pip install pandas`."
        ) from None
    return DataFrame(values)
