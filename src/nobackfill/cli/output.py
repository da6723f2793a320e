"""Output of the commands: one JSON object with `--json`, text otherwise."""

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.text import Text

from nobackfill.cli.exit_codes import COULD_NOT_RUN
from nobackfill.cli.quiet import is_quiet
from nobackfill.core import terminal
from nobackfill.core.console import PlainConsole, visible
from nobackfill.core.page import Page, Table

console = PlainConsole()


def emit(value: Mapping[str, Any]) -> None:
    """Prints one JSON object; a broken pipe exits with 2."""
    try:
        print(json.dumps(value), flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(COULD_NOT_RUN) from None


def print_line(text: str, *, style: str = "") -> None:
    """Prints a text as it is, without markup; a terminal wraps it at words."""
    console.print(visible(text), soft_wrap=not console.is_terminal, style=style)


def print_warning(text: str) -> None:
    """Prints a warning on stderr, which --quiet does not silence."""
    errors = PlainConsole(stderr=True)
    errors.print(f"nobackfill: {visible(text)}", soft_wrap=not errors.is_terminal)


def print_remarks(remarks: Sequence[str]) -> None:
    """Prints on stderr what was guessed or left out in reading, unless the command is quiet."""
    for remark in () if is_quiet() else remarks:
        print_warning(remark)


def print_item(text: str | Text, *, indent: str = "    ", style: str = "") -> None:
    """Prints a text; a terminal wraps it at words and indents the further lines."""
    text = text if isinstance(text, Text) else Text(visible(text))
    if not console.is_terminal:
        console.print(text, soft_wrap=True, style=style)
        return
    first, *rest = text.wrap(console, console.width - len(indent))
    console.print(first, style=style)
    for line in rest:
        console.print(Text(indent).append(line), style=style)


def print_object(value: Mapping[str, Any], *, as_json: bool, text: str) -> None:
    """Prints `value` as JSON, or `text`."""
    if as_json:
        emit(value)
    else:
        print_line(text)


def print_page(
    page: Page, facts: Mapping[str, Any], *, as_json: bool, report: Path | None = None
) -> None:
    """Prints the facts as JSON, or the page and the path of the report, if one was written."""
    if as_json:
        emit(facts)
        return
    terminal.print_page(replace(page, notes=[]) if is_quiet() else page, console)
    if report is not None:
        print_line(f"Report: {report}")


def print_table(table: Table) -> None:
    """Prints a table."""
    terminal.print_table(table, console)


def print_notes(notes: Sequence[str]) -> None:
    """Prints a line for each note, unless the command is quiet."""
    if not is_quiet():
        terminal.print_notes(notes, console)
