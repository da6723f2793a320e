"""A page in a terminal: the verdict, the numbers, what was not measured, and notes."""

import io
import textwrap
from collections.abc import Sequence

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from nobackfill.core.console import PlainConsole, visible
from nobackfill.core.page import TONES, Cell, Page, Section, Table

STYLES = {"yes": "green", "no": "red", "open": "yellow"}
# Last character of a cell; circles and triangles are those of a compatibility matrix.
SIGNS = {
    "✓": "green", "✗": "red", "–": "dim",
    "●": "bold", "▲": "green", "▼": "red", "△": "dim green", "▽": "dim red",
}  # fmt: skip

LINES = 25  # of a page that has room for its notes
NOTE_LINES = 6  # of notes below a longer page
LONGEST_NAME = 40  # cells of the first column are wrapped if one is longer
SHORTEST_NAME = 12  # to which a terminal that is too narrow cuts them


def page_text(page: Page) -> str:
    """What `print_page` prints where the output is not a terminal."""
    file = io.StringIO()
    print_page(page, PlainConsole(file=file, width=80))
    return file.getvalue().rstrip("\n")


def print_page(page: Page, console: Console) -> None:
    """Prints a page. Titles are printed only if there are several sections.

    A terminal wraps sentences at words; elsewhere each is a line. Notes that would make a page
    longer than 25 lines are counted, not printed.
    """
    sections = [section for section in page.sections if section.in_terminal]
    print_conclusion(page, console)
    for number, section in enumerate(sections):
        if number or page.verdict or page.summary:
            console.print()
        _print_section(section, console, with_title=len(sections) > 1)
    missing = [reason.partition(":")[0] for reason in page.not_measured]
    not_measured = f"Not measured: {'; '.join(missing)}." if missing else ""
    if missing:
        _print_text(not_measured, console, "dim")
    used = sum(_height(section, console) + 1 for section in sections)
    used += sum(_lines(text, console) for text in (_conclusion(page).plain, not_measured))
    print_notes(page.notes, console, lines=LINES - used if used < LINES else NOTE_LINES)


def print_conclusion(page: Page, console: Console) -> None:
    """Prints the verdict and the sentences of a page."""
    if page.verdict or page.summary:
        _print_text(_conclusion(page), console)


def _conclusion(page: Page) -> Text:
    """The verdict in its colour, and the sentences of a page."""
    conclusion = Text()
    if page.verdict:
        style = STYLES.get(TONES.get(page.verdict, ""), "")
        conclusion.append(f"{page.verdict.capitalize()}: ", style)
    return conclusion.append(visible(" ".join(page.summary)))


def print_notes(notes: Sequence[str], console: Console, *, lines: int | None = None) -> None:
    """Prints each note, or those that fit into a number of lines and the number of others."""
    for number, note in enumerate(notes):
        text = f"Note: {note}."
        if lines is not None:
            lines -= _lines(text, console)
            is_last = number == len(notes) - 1
            if lines < (0 if is_last else 1):  # a line for the number of others
                rest = f"{len(notes) - number}{' more' * bool(number)}"
                _print_text(f"Notes: {rest}, under `notes` (--json).", console, "yellow")
                return
        _print_text(text, console, "yellow")


def print_table(table: Table, console: Console) -> None:
    """Prints a table. Words such as "yes" and signs such as "▲" have a colour.

    Numbers are never wrapped or cut. On a terminal that is too narrow, columns move together and
    names in the first column lose their middle, then long words in other columns are folded; a
    table that is still too wide leaves the terminal.
    """
    grid, is_cut = _grid(table), False
    if console.is_terminal and _narrowest(grid, console) > console.width:
        grid = _grid(table, gap=1)
        if (excess := _narrowest(grid, console) - console.width) > 0:
            names = max(
                map(cell_len, map(_text, (table.columns[0], *(row[0] for row in table.rows))))
            )
            longest = max(SHORTEST_NAME, names - excess)
            grid, is_cut = _grid(table, gap=1, longest=longest), longest < names
    narrowest = _narrowest(grid, console)
    if narrowest > console.width and not (console.is_terminal and _can_fold(grid, console.width)):
        grid.width = narrowest
    console.print(grid, crop=False)
    if is_cut:
        _print_text("… stands for the middle of a long name; --json has all of it.", console, "dim")


def _narrowest(grid: Grid, console: Console) -> int:
    return console.measure(grid, options=console.options.update(max_width=10_000)).minimum


def _can_fold(grid: Grid, width: int) -> bool:
    """Whether the columns of text can be folded so far that a table fits."""
    fixed = (column.min_width if column.no_wrap else SHORTEST_NAME for column in grid.columns)
    return sum(cells or 0 for cells in fixed) + 2 * len(grid.columns) <= width


def _grid(table: Table, *, gap: int = 2, longest: int | None = None) -> Grid:
    """A table with a gap between columns, and names of at most `longest` cells in the first."""
    shown = [place for place, name in enumerate(table.columns) if name not in table.details]
    rows = {number: row for number, row in enumerate(table.rows) if number not in table.further}
    grid = Grid(box=None, padding=(0, gap, 0, 0), pad_edge=False, header_style="dim")
    for place in shown:
        name = _text(table.columns[place])
        name = name if place else _shortened(name, longest)
        is_number = table.columns[place] in table.numbers
        lines = table.columns[place] in table.broken
        cells = [name, *(_text(row[place], lines=lines) for row in rows.values())]
        width = max(cell_len(cell if place else _shortened(cell, longest)) for cell in cells)
        is_fixed = is_number or (place == 0 and width <= LONGEST_NAME)
        grid.add_column(
            Text(name),
            justify="right" if is_number else "left",
            no_wrap=is_fixed,
            min_width=width if is_fixed else None,
            overflow="fold",
        )
    for number, row in rows.items():
        others = [
            _colored(row[place], lines=table.columns[place] in table.broken) for place in shown[1:]
        ]
        first = Text(_shortened(_text(row[shown[0]]), longest))
        grid.add_row(first, *others, style="bold" if number == table.strong else "")
    return grid


def _shortened(text: str, longest: int | None) -> str:
    """A text without its middle, if it has more than `longest` cells.

    Example:
        >>> _shortened("photographs/2019/000123.jpg", 16), _shortened("7", 16)
        ('photogr…0123.jpg', '7')
    """
    if longest is None or cell_len(text) <= longest:
        return text
    kept = longest - 1
    while True:  # wide characters have two cells
        short = f"{text[: kept // 2]}…{text[len(text) - (kept + 1) // 2 :]}"
        if cell_len(short) <= longest:
            return short
        kept -= 1


def _print_section(section: Section, console: Console, *, with_title: bool) -> None:
    if with_title and section.title:
        _print_text(section.title, console, "bold")
    for number, table in enumerate(section.tables):
        if number:
            console.print()
        if table.caption:
            _print_text(table.caption, console)
        print_table(table, console)
    if section.brief or section.text:
        text = visible(section.brief or section.text, lines=True)
        _print_text(Text(text), console, "dim")


def _print_text(text: str | Text, console: Console, style: str = "") -> None:
    """Prints a text as it is, without markup; a terminal wraps it at words."""
    text = text if isinstance(text, Text) else Text(visible(text))
    console.print(text, style=style, soft_wrap=not console.is_terminal)


def _height(section: Section, console: Console) -> int:
    """Number of lines of a section."""
    tables = section.tables
    rows = sum(len(table.rows) - len(table.further) + 1 + bool(table.caption) for table in tables)
    return rows + _lines(section.brief or section.text, console)


def _lines(text: str, console: Console) -> int:
    """Number of lines of a text in the terminal."""
    return sum(len(textwrap.wrap(line, console.width)) for line in text.splitlines())


def _text(cell: Cell, *, lines: bool = False) -> str:
    """A cell in words: pictures are described."""
    text = cell if isinstance(cell, str) else ", ".join(picture.says for picture in cell)
    return visible(text, lines=lines)


def _colored(cell: Cell, *, lines: bool) -> Text:
    """A cell in the colour of its word or sign."""
    text = _text(cell, lines=lines)
    return Text(text, STYLES.get(TONES.get(text, "")) or SIGNS.get(text[-1:], ""))
