"""The content of a report: sections of sentences, tables and figures.

A page is described once and rendered by `html`, `markdown` and `terminal`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from nobackfill import __version__
from nobackfill.errors import ConfigError

PAIRS = (
    "Pairs are written query/gallery: old/old is the service as it is today, new/old the day of "
    "the upgrade, new/new after every gallery item has been embedded again."
)

# Tone of a verdict, and of a cell that contains such a word: it decides the colour.
TONES = {
    "compatible": "yes", "upgrade with head": "yes", "two-stage": "yes", "yes": "yes",
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
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    numbers: frozenset[str] = frozenset()
    strong: int | None = None
    caption: str = ""
    details: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Figure:
    """A figure with a description. It is drawn on first access: the terminal shows none.

    Attributes:
        draw: Function that returns an SVG element (`report.svg.to_svg`).
        title: What it shows.
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
        title: What it shows.
        text: How to read it.
        tables: Numbers.
        figures: Pictures of numbers.
        in_terminal: Whether the terminal shows the section.
    """

    title: str
    text: str = ""
    tables: Sequence[Table] = ()
    figures: Sequence[Figure] = ()
    in_terminal: bool = True


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
        version: Version of the package.
    """

    title: str
    summary: Sequence[str]
    sections: Sequence[Section] = ()
    verdict: str = ""
    not_measured: Sequence[str] = ()
    notes: Sequence[str] = ()
    made_of: Mapping[str, str] = field(default_factory=dict)
    version: str = __version__

    @property
    def caveats(self) -> list[str]:
        """What was not measured, and the notes."""
        return [*self.not_measured, *self.notes]


def check_page(path: Path) -> None:
    """Raises `ConfigError` unless the path of a report ends in .html."""
    if path.suffix != ".html":
        raise ConfigError(f"A report is an HTML file, but the path is {path}. End it in .html.")


def names_apart(old: Path, new: Path) -> tuple[str, str]:
    """Names of two files: their stems, with as many parent folders as it takes to differ.

    Example:
        >>> names_apart(Path("runs/old/validation.parquet"), Path("runs/ndpp/validation.parquet"))
        ('old/validation', 'ndpp/validation')
        >>> names_apart(Path("a/old.parquet"), Path("b/new.parquet"))
        ('old', 'new')
    """
    parts = [path.absolute().with_suffix("").parts[1:] for path in (old, new)]
    for number in range(1, max(map(len, parts)) + 1):
        before, after = ("/".join(part[-number:]) for part in parts)
        if before != after:
            return before, after
    return old.name, new.name


def upgrade_title(old: Path, new: Path) -> str:
    """Title of the report on two files of vectors.

    Example:
        >>> upgrade_title(Path("old.parquet"), Path("new.parquet"))
        'May new go live on the vectors of old?'
    """
    before, after = names_apart(old, new)
    return f"May {after} go live on the vectors of {before}?"
