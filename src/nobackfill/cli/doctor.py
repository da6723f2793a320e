"""`nobackfill doctor` and its output."""

from typing import TYPE_CHECKING

from rich.table import Table

from nobackfill.cli.options import Json
from nobackfill.cli.output import console, emit

if TYPE_CHECKING:
    from nobackfill.core.environment import Environment, Package


def doctor(json: Json = False) -> None:
    """Print the installed packages and the devices, and whether they work."""
    from nobackfill.core.environment import check_environment

    print_environment(check_environment(), as_json=json)


def print_environment(env: "Environment", *, as_json: bool) -> None:
    """Prints versions, devices and packages, and how to install what is missing."""
    if as_json:
        emit(env.summary())
        return
    console.print(f"nobackfill {env.nobackfill}, Python {env.python}, {env.system}")
    console.print(f"torch {env.torch}, {env.threads} threads; on {', '.join(env.devices)}")
    if env.data is not None:
        folder, exists = env.data
        console.print(f"NOBACKFILL_DATA is {folder}{'' if exists else ', which does not exist'}")
    table = Table(box=None, header_style="bold")
    for head in ("", "package", "version", "for", ""):
        table.add_column(head)
    for package in env.packages:
        mark = "[green]✓[/]" if package.works else "[red]✗[/]" if package.problem else "[dim]–[/]"
        table.add_row(mark, package.name, package.version or "", package.gives, remedy(package))
    console.print(table)


def remedy(package: "Package") -> str:
    """Returns what to do about a package that does not work."""
    if package.problem:
        return f"cannot be imported: {package.problem}"
    return "" if package.works else f"pip install 'nobackfill\\[{package.extra}]'"
