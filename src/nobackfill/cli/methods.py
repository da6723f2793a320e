"""`nobackfill methods` and its output."""

from collections.abc import Sequence
from textwrap import fill
from typing import Annotated, Any

import typer

from nobackfill.cli import output
from nobackfill.cli.options import Json, names_in
from nobackfill.core.page import Table

COST_WIDTH = 14  # characters of the last column, so that the others fit 80


def methods(
    given: Annotated[
        list[str] | None,
        typer.Option(
            help="Part of the old model that you have: prototypes, embeddings, classifier …",
            autocompletion=names_in("methods.old_space:MEANING"),
        ),
    ] = None,
    json: Json = False,
) -> None:
    """List the methods and what each needs of the old model."""
    from nobackfill.core.suggest import suggest
    from nobackfill.errors import ConfigError
    from nobackfill.methods.old_space import MEANING

    parts = None if given is None else [part for text in given for part in text.split(",")]
    for part in parts or []:
        if part not in MEANING:
            raise ConfigError(f"unknown part `{part}` of an old model. {suggest(part, MEANING)}")
    rows = describe_methods(parts)
    if json:
        output.emit({"methods": rows})
    else:
        print_methods(rows, parts or [])


def describe_methods(parts: Sequence[str] | None) -> list[dict[str, Any]]:
    """Facts about each method, and whether it works with these parts of the old model."""
    from nobackfill.methods import METHODS

    def by_name(text: str) -> str:
        for name, method in METHODS.items():
            text = text.replace(f"`{method.__name__}`", name)
        return text

    return [
        {
            "name": name,
            "paper": method.paper,
            "year": method.year,
            "needs": sorted(method.needs),
            "at_inference": method.at_inference,
            "supervised": method.supervised,
            "says": by_name((method.__doc__ or "").strip().splitlines()[0]),
            "usable": parts is None or method.needs <= set(parts),
        }
        for name, method in METHODS.items()
    ]


def print_methods(rows: Sequence[dict[str, Any]], parts: Sequence[str]) -> None:
    """Prints the usable methods; from 120 columns on, also a description of each.

    Below 80 columns the papers are left out.
    """
    width = output.console.width
    usable = [row for row in rows if row["usable"]]
    facts = [
        [
            row["name"], row["paper"], str(row["year"] or ""),
            ",\n".join(row["needs"]) or "nothing", fill(row["at_inference"], COST_WIDTH),
        ]
        for row in usable
    ]  # fmt: skip
    columns = ["method", "paper", "year", "needs", "inference cost"]
    details = frozenset({"paper"} if width < 80 else ())
    broken = frozenset({"needs", "inference cost"})
    output.print_table(Table(columns, facts, details=details, broken=broken))
    if width >= 120:
        output.console.print()
        says = [[row["name"], row["says"]] for row in usable]
        output.print_table(Table(["method", "what it does"], says))
    rest = [f"{row['name']} ({', '.join(row['needs'])})" for row in rows if not row["usable"]]
    if rest:
        output.console.print(f"\nThese methods need more: {'; '.join(rest)}.", style="dim")
    if "embeddings" in parts and "prototypes" not in parts:
        hint = "\nOld vectors of labelled items give prototypes too: add --given prototypes."
        output.console.print(hint, style="dim")
    if width < 120:
        hint = "\nA description of each method: --json, or a terminal of 120 columns."
        output.console.print(hint, style="dim")
