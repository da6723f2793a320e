"""A page on the terminal: sections without figures, then notes; the conclusion comes last."""

from collections.abc import Sequence

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from nobackfill.core.page import TONES, Cell, Page, Section, Table

STYLES = {"yes": "green", "no": "red", "open": "yellow"}
# Last character of a cell; circles and triangles are those of a compatibility matrix.
SIGNS = {
    "✓": "green", "✗": "red", "–": "dim",
    "●": "bold", "▲": "green", "▼": "red", "△": "dim green", "▽": "dim red",
}  # fmt: skip

LONGEST_NAME = 40  # cells of the first column are wrapped if one is longer


def print_page(page: Page, console: Console) -> None:
    """Prints a page. Titles are printed only if there are several sections."""
    sections = [section for section in page.sections if section.in_terminal]
    for number, section in enumerate(sections):
        if number:
            console.print()
        _print_section(section, console, with_title=len(sections) > 1)
    print_notes(page.notes, console)
    print_conclusion(page, console)


def print_conclusion(page: Page, console: Console) -> None:
    """Prints the verdict and the sentences of a page."""
    conclusion = Text()
    if page.verdict:
        style = STYLES.get(TONES.get(page.verdict, ""), "")
        conclusion.append(f"{page.verdict.capitalize()}: ", style)
    if page.verdict or page.summary:
        console.print(conclusion.append(" ".join(page.summary)), soft_wrap=True)


def print_notes(notes: Sequence[str], console: Console) -> None:
    """Prints a line for each note."""
    for note in notes:
        console.print(f"Note: {note}.", style="yellow", markup=False, soft_wrap=True)


def print_table(table: Table, console: Console) -> None:
    """Prints a table. Words such as "yes" and signs such as "▲" have a colour.

    Numbers are never wrapped or cut, nor are short names in the first column: a table that is too
    wide leaves the terminal.
    """
    shown = [place for place, name in enumerate(table.columns) if name not in table.details]
    grid = Grid(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    for place in shown:
        name = table.columns[place]
        is_number = name in table.numbers
        width = max(cell_len(text) for text in (name, *(_text(row[place]) for row in table.rows)))
        is_fixed = is_number or (place == 0 and width <= LONGEST_NAME)
        grid.add_column(
            Text(name),
            justify="right" if is_number else "left",
            no_wrap=is_fixed,
            min_width=width if is_fixed else None,
            overflow="fold",
        )
    for number, row in enumerate(table.rows):
        first, *others = (row[place] for place in shown)
        style = "bold" if number == table.strong else ""
        grid.add_row(Text(_text(first)), *map(_colored, others), style=style)
    narrowest = console.measure(grid, options=console.options.update(max_width=10_000)).minimum
    if narrowest > console.width:
        grid.width = narrowest
    console.print(grid, crop=False)


def _print_section(section: Section, console: Console, *, with_title: bool) -> None:
    if with_title and section.title:
        console.print(section.title, style="bold", markup=False, soft_wrap=True)
    for number, table in enumerate(section.tables):
        if number:
            console.print()
        if table.caption:
            console.print(table.caption, markup=False, soft_wrap=True)
        print_table(table, console)
    if section.text:
        console.print(section.text, style="dim", markup=False, soft_wrap=True)


def _text(cell: Cell) -> str:
    """A cell in words: pictures are described."""
    return cell if isinstance(cell, str) else ", ".join(picture.says for picture in cell)


def _colored(cell: Cell) -> Text:
    """A cell in the colour of its word or sign."""
    text = _text(cell)
    return Text(text, STYLES.get(TONES.get(text, "")) or SIGNS.get(text[-1:], ""))
