"""`nobackfill doctor` and its output."""

from typing import TYPE_CHECKING

from rich.table import Table

from nobackfill.cli.options import Json
from nobackfill.cli.output import console, emit

if TYPE_CHECKING:
    from nobackfill.core.environment import Environment, Package


def doctor(json: Json = False) -> None:
    """Tell what is installed, which devices there are, and what works."""
    from nobackfill.core.environment import check_environment

    print_examination(check_environment(), as_json=json)


def print_examination(found: "Environment", *, as_json: bool) -> None:
    """Prints what was found, and how to get what is missing."""
    if as_json:
        emit(found.summary())
        return
    console.print(f"nobackfill {found.nobackfill}, Python {found.python}, {found.system}")
    console.print(f"torch {found.torch}, {found.threads} threads; on {', '.join(found.devices)}")
    if found.data is not None:
        folder, exists = found.data
        console.print(f"NOBACKFILL_DATA is {folder}{'' if exists else ', which is not there'}")
    table = Table(box=None, header_style="bold")
    for head in ("", "package", "version", "for", ""):
        table.add_column(head)
    for one in found.packages:
        mark = "[green]✓[/]" if one.works else "[red]✗[/]" if one.problem else "[dim]–[/]"
        table.add_row(mark, one.name, one.version or "", one.gives, remedy(one))
    console.print(table)


def remedy(package: "Package") -> str:
    """What to do about a package that cannot be used."""
    if package.problem:
        return f"cannot be imported: {package.problem}"
    return "" if package.works else f"pip install 'nobackfill\\[{package.extra}]'"
