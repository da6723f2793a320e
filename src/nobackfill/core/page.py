"""The content of a result: sentences, tables and figures, described once.

The terminal shows it by `core.terminal`; `report` writes it as HTML and Markdown.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from nobackfill import __version__

# Tone of a verdict, and of a cell that contains such a word: it decides the colour.
TONES = {
    "compatible": "yes", "upgrade with head": "yes", "both models ask": "yes", "two-stage": "yes",
    "yes": "yes",
    "not compatible": "no", "keep the old model": "no", "backfill first": "no",
    "full backfill": "no", "no": "no",
    "undecided": "open", "inconclusive": "open", "mixed": "open",
}  # fmt: skip


@dataclass(frozen=True)
class Picture:
    """A small picture in a table.

    Attributes:
        source: A data URI.
        says: Text that replaces the picture.
        right: Whether the item is relevant; None if that does not apply.
    """

    source: str
    says: str
    right: bool | None = None


Cell = str | tuple[Picture, ...]


@dataclass(frozen=True)
class Table:
    """A table.

    Attributes:
        columns: Headers.
        rows: Cells: text, or a few pictures.
        numbers: Headers of columns with numbers, which are aligned right.
        strong: Row in bold, if any.
        caption: Caption, if the section has several tables.
        details: Headers of columns that the terminal leaves out.
        further: Rows that the terminal leaves out.
        broken: Headers of columns whose cells are broken into lines.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    numbers: frozenset[str] = frozenset()
    strong: int | None = None
    caption: str = ""
    details: frozenset[str] = frozenset()
    further: frozenset[int] = frozenset()
    broken: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Figure:
    """A figure with a description. It is drawn on first access: the terminal shows none.

    Attributes:
        draw: Function that returns an SVG element (`report.svg.to_svg`).
        title: Subject of the figure.
        says: Description that replaces the figure.
    """

    draw: Callable[[], str] = field(compare=False)
    title: str
    says: str

    @cached_property
    def svg(self) -> str:
        """SVG element."""
        return self.draw()


@dataclass(frozen=True)
class Section:
    """A part of the page: a heading, a few sentences, then tables and figures.

    Attributes:
        title: Heading.
        text: Explanation of the numbers.
        tables: Numbers.
        figures: Pictures of numbers.
        in_terminal: Whether the terminal shows the section.
        brief: Shorter text for the terminal, if there is one.
    """

    title: str
    text: str = ""
    tables: Sequence[Table] = ()
    figures: Sequence[Figure] = ()
    in_terminal: bool = True
    brief: str = ""


@dataclass(frozen=True)
class JudgedItem:
    """An item that a person sees: a picture, a text, or else its id.

    Attributes:
        id: Its id.
        label: A short form of the id.
        picture: A data URI; empty for none.
        text: A text; empty for none.
    """

    id: str
    label: str
    picture: str = ""
    text: str = ""


@dataclass(frozen=True)
class JudgedQuery:
    """A query with its results by both models, for a person to judge.

    Attributes:
        query: Number of the item that is the query.
        before: Numbers of the items that the old query finds, best first.
        after: Numbers of the items that the new query finds, best first.
        is_swapped: Whether the new results are on the left.
    """

    query: int
    before: Sequence[int]
    after: Sequence[int]
    is_swapped: bool


@dataclass(frozen=True)
class JudgingSheet:
    """Changed queries for a person to judge, in HTML alone.

    Attributes:
        queries: Queries with their results.
        items: Items that queries and results refer to by number.
        changed: Number of changed queries that these were drawn from.
        file_name: Name of the file of answers.
    """

    queries: Sequence[JudgedQuery]
    items: Sequence[JudgedItem]
    changed: int
    file_name: str


@dataclass(frozen=True)
class Page:
    """A report.

    Attributes:
        title: Title.
        summary: Sentences with the conclusions.
        verdict: "compatible", "not compatible" or "undecided"; empty for no verdict.
        sections: Sections.
        not_measured: Facts that the report lacks, each with the reason.
        notes: Notes for the reader of the results, without a full stop.
        made_of: Sources of the numbers: names, fingerprints, counts.
        judging: Queries for a person to judge, if any.
        version: Version of the package.
    """

    title: str
    summary: Sequence[str]
    sections: Sequence[Section] = ()
    verdict: str = ""
    not_measured: Sequence[str] = ()
    notes: Sequence[str] = ()
    made_of: Mapping[str, str] = field(default_factory=dict)
    judging: JudgingSheet | None = None
    version: str = __version__

    @property
    def caveats(self) -> list[str]:
        """What was not measured, and the notes."""
        return [*self.not_measured, *self.notes]


class Readable:
    """A result that prints as its page, and shows it in a notebook."""

    def page(self) -> Page:
        """The verdict, the numbers, what was not measured, and notes; by default its `repr`."""
        return Page(type(self).__name__, [repr(self)])

    def __str__(self) -> str:
        from nobackfill.core.terminal import page_text

        return page_text(self.page())

    def _repr_html_(self) -> str:
        from nobackfill.core.notebook import page_html

        return page_html(self.page())
