"""One page of HTML that needs nothing but itself."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from jinja2 import Environment, StrictUndefined, Template
from markupsafe import Markup

from nobackfill import __version__


@dataclass(frozen=True)
class Table:
    """A table for people.

    Attributes:
        columns: The heads; a column whose head is in `numbers` is set flush right.
        rows: The cells, as text.
        numbers: Heads of columns that hold numbers.
        strong: The row to be set in bold, if any.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    numbers: frozenset[str] = frozenset()
    strong: int | None = None


@dataclass(frozen=True)
class Section:
    """A part of the page: a heading, a few sentences, then a table or figures.

    Attributes:
        title: What it shows.
        text: How to read it.
        table: Numbers.
        figures: SVG texts, made by `report.plots`.
    """

    title: str
    text: str = ""
    table: Table | None = None
    figures: Sequence[str] = ()


@cache
def _template() -> Template:
    source = files("nobackfill.report").joinpath("page.html.jinja").read_text(encoding="utf-8")
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    return environment.from_string(source)


def render_page(title: str, summary: Sequence[str], sections: Sequence[Section]) -> str:
    """Returns the page as HTML: a title, what to conclude, then the sections."""
    shown = [
        {
            "title": section.title,
            "text": section.text,
            "table": section.table,
            "figures": [Markup(figure) for figure in section.figures],  # our own SVG, not input
        }
        for section in sections
    ]
    return _template().render(title=title, summary=summary, sections=shown, version=__version__)
