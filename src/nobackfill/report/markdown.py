"""A report as Markdown, as GitHub reads it: the same facts, without pictures."""

import re
from collections.abc import Iterator

from nobackfill.core.console import visible
from nobackfill.core.page import Cell, Page, Picture, Section, Table
from nobackfill.report.titles import PAIRS


def render_markdown(page: Page) -> str:
    """Returns the page as Markdown. Figures and pictures are there in their words."""
    return "\n\n".join(_blocks(page)) + "\n"


def _blocks(page: Page) -> Iterator[str]:
    yield f"# {_line(page.title)}"
    if page.verdict:
        yield f"**Verdict: {_line(page.verdict)}**"
    yield from map(_plain, page.summary)
    for section in page.sections:
        yield from _section_blocks(section)
    if page.caveats:
        yield "## What was not measured"
        yield "\n".join(f"- {_line(what)}" for what in page.caveats)
    if page.made_of:
        yield "## What this was made of"
        yield "\n".join(f"- {_line(name)}: {_line(what)}" for name, what in page.made_of.items())
    yield f"Made by nobackfill {page.version}. {PAIRS}"


def _section_blocks(section: Section) -> Iterator[str]:
    yield f"## {_line(section.title)}"
    if section.text:
        yield _plain(section.text)
    for table in section.tables:
        if table.caption:
            yield f"**{_line(table.caption)}**"
        yield _table(table)
    for figure in section.figures:
        yield f"**{_line(figure.title)}**"
        if figure.says:
            yield _plain(figure.says)


def _table(table: Table) -> str:
    """A table with pipes: numbers flush right, the strong row in bold."""
    rules = ["---:" if column in table.numbers else "---" for column in table.columns]
    rows = [[_in_table(_cell(cell)) for cell in row] for row in table.rows]
    if table.strong is not None:
        rows[table.strong] = [f"**{cell}**" if cell else "" for cell in rows[table.strong]]
    heads = [_in_table(_plain(column)) for column in table.columns]
    return "\n".join(f"| {' | '.join(row)} |" for row in (heads, rules, *rows))


def _cell(cell: Cell) -> str:
    return _plain(cell) if isinstance(cell, str) else ", ".join(map(_picture, cell))


def _picture(picture: Picture) -> str:
    sign = {True: "✓ ", False: "✗ ", None: ""}[picture.right]
    return sign + _plain(picture.says)


def _in_table(text: str) -> str:
    """Escapes what would end a cell or its row."""
    return text.replace("|", r"\|").replace("\n", "<br>")


def _line(text: str) -> str:
    """A text for a place that holds one line."""
    return _plain(" ".join(text.split()))


def _plain(text: str) -> str:
    r"""Escapes what Markdown would read as more than text, and no more than that.

    Example:
        >>> print(_plain("new_old of <b> * 2"))
        new_old of \<b> \* 2
    """
    return re.sub(r"[\\`*<\[\]~]|(?<![^\W_])_|_(?![^\W_])", r"\\\g<0>", visible(text, lines=True))
