"""`nobackfill datasets` and `nobackfill datasets check NAME PATH`, and their output."""

from collections.abc import Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from nobackfill.cli import progress
from nobackfill.cli.exit_codes import NO
from nobackfill.cli.options import Json
from nobackfill.cli.output import console, emit
from nobackfill.errors import ConfigError

if TYPE_CHECKING:
    from nobackfill.data.verify import Check


class Action(StrEnum):
    """Action other than listing."""

    check = "check"


class Decode(StrEnum):
    """Images to open."""

    all = "all"
    some = "some"
    none = "none"


def datasets(
    action: Annotated[
        Action | None, typer.Argument(help="check: compare a copy with the official counts.")
    ] = None,
    name: Annotated[
        str | None, typer.Argument(help="Collection to check, such as market1501.")
    ] = None,
    path: Annotated[Path | None, typer.Argument(help="Folder of the collection.")] = None,
    decode: Annotated[
        Decode, typer.Option(help="Images to open: all, some (1,000) or none.")
    ] = Decode.some,
    json: Json = False,
) -> None:
    """List the supported collections, or check a copy on disk (exit code 1 if it differs)."""
    from nobackfill.data.verify import check_dataset

    if action is None:
        print_datasets(as_json=json)
        return
    if name is None or path is None:
        raise ConfigError(
            f"{'PATH' if name else 'NAME'} is missing. Use `nobackfill datasets check NAME PATH`; "
            f"`nobackfill datasets` lists the names."
        )
    result = check_dataset(name, path, decode=decode.value, watch=watch_files)
    print_check(result, as_json=json)
    if not result.passed:
        raise typer.Exit(NO)


def print_datasets(*, as_json: bool) -> None:
    """Prints each collection with its expected files and counts."""
    from nobackfill.data.registry import DATASETS

    if as_json:
        rows = [
            {
                "name": name,
                "says": dataset.says,
                "layout": dataset.layout.splitlines(),
                "counts": dict(dataset.counts),
            }
            for name, dataset in DATASETS.items()
        ]
        emit({"datasets": rows})
        return
    for name, dataset in DATASETS.items():
        console.print(f"[bold]{name}[/]  ", end="")
        console.print(dataset.says, markup=False, soft_wrap=True)
        for line in dataset.layout.splitlines():
            console.print(f"    {line}", markup=False, soft_wrap=True)
        if dataset.counts:
            counts = ", ".join(f"{count:,} {_label(key)}" for key, count in dataset.counts.items())
            console.print(f"    {counts}", markup=False, soft_wrap=True, style="dim")
        console.print()
    console.print("Check a copy with: nobackfill datasets check NAME PATH", markup=False)


def print_check(check: "Check", *, as_json: bool) -> None:
    """Prints the counts next to the official ones, the first faulty files, and a verdict."""
    if as_json:
        emit(check.summary())
        return
    table = Table(box=None, padding=(0, 2), header_style="dim")
    table.add_column(check.name)
    table.add_column("here", justify="right")
    table.add_column("official", justify="right")
    for key in [*check.counts, *(key for key in check.official if key not in check.counts)]:
        official = f"{check.official[key]:,}" if key in check.official else "–"
        style = "red" if key in check.differences else ""
        table.add_row(_label(key), f"{check.counts.get(key, 0):,}", official, style=style)
    console.print(table)
    for line in _findings(check):
        console.print(line, markup=False, soft_wrap=True)
    for note in check.notes:
        console.print(f"Note: {note}.", style="yellow", markup=False, soft_wrap=True)
    opened = f"{check.decoded:,} of {check.counts['images']:,} images opened"
    if not check.passed:
        console.print(f"[red]Differs from the official release[/] ({opened}).", soft_wrap=True)
    elif check.official:
        console.print(f"[green]Matches the official release[/] ({opened}).", soft_wrap=True)
    else:
        console.print(
            f"[green]All files exist[/] ({opened}); there are no official counts to compare with.",
            soft_wrap=True,
        )


def watch_files(files: Sequence[str]) -> Iterator[str]:
    """Yields files with a progress bar on stderr."""
    with progress.counting_progress("opening images", len(files), unit="files") as update:
        for done, file in enumerate(files, start=1):
            yield file
            update(done)


def _findings(check: "Check") -> Iterator[str]:
    """Yields a line for each kind of faulty file."""
    if check.missing.number:
        yield f"{check.missing.number:,} files are missing, the first: {check.missing.first}"
    if check.undecodable.number:
        yield (
            f"{check.undecodable.number:,} files cannot be opened, the first: "
            f"{check.undecodable.first} ({check.undecodable.reason})"
        )
    if check.unused.number:
        yield f"{check.unused.number:,} files are not used, the first: {check.unused.first}"


def _label(key: str) -> str:
    """Returns the display name of a count."""
    return "gallery images" if key == "gallery" else key.replace("_", " ")
