"""`nobackfill datasets` and `nobackfill datasets check NAME PATH`, and their output."""

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from nobackfill.cli import progress
from nobackfill.cli.exit_codes import NO
from nobackfill.cli.options import Json
from nobackfill.cli.output import console, emit, print_item, print_line, print_page
from nobackfill.core.console import visible
from nobackfill.core.page import Page, Section, Table
from nobackfill.errors import ConfigError

if TYPE_CHECKING:
    from nobackfill.data.listing import Dataset
    from nobackfill.data.texts import TextDataset
    from nobackfill.data.verify import Check


class Action(StrEnum):
    """Action other than listing."""

    check = "check"
    pairs = "pairs"


class Decode(StrEnum):
    """Images to open."""

    all = "all"
    some = "some"
    none = "none"


def datasets(
    action: Annotated[
        Action | None,
        typer.Argument(
            help="check: compare a copy with the official counts. pairs: write a collection of "
            "texts as pairs for `train --pairs`."
        ),
    ] = None,
    name: Annotated[
        str | None, typer.Argument(help="Collection to check, such as market1501.")
    ] = None,
    path: Annotated[
        Path | None,
        typer.Argument(
            help="Folder of the collection; for han, of its fonts; for debian, files of an apt "
            "mirror, by default those of this machine."
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="File of pairs to write (.jsonl).")
    ] = None,
    split: Annotated[
        str, typer.Option(help="Split of the pairs: train, validation or unused.")
    ] = "train",
    decode: Annotated[
        Decode, typer.Option(help="Images to open: all, some (1,000) or none.")
    ] = Decode.some,
    json: Json = False,
) -> None:
    """List the supported collections, or check a copy on disk (exit code 1 if it differs)."""
    from nobackfill.data.text_collections import TEXT_DATASETS
    from nobackfill.data.verify import check_dataset

    if action is None:
        print_datasets(as_json=json)
        return
    if name == "han":
        check_fonts(path, as_json=json)
        return
    if action is Action.pairs:
        from nobackfill.cli.text_datasets import write_pairs

        write_pairs(name, path, output, split=split, as_json=json)
        return
    if name in TEXT_DATASETS:
        from nobackfill.cli.text_datasets import check_texts

        check_texts(name, path, as_json=json)
        return
    if name is None or path is None:
        raise ConfigError(
            f"{'PATH' if name else 'NAME'} is missing. Use `nobackfill datasets check NAME PATH`; "
            f"`nobackfill datasets` lists the names."
        )
    result = check_dataset(name, path, decode=decode.value, watch=watch_files)
    print_page(result_page(result), result.summary(), as_json=json)
    if not result.passed:
        raise typer.Exit(NO)


def print_datasets(*, as_json: bool) -> None:
    """Prints each collection with its expected files and counts."""
    from nobackfill.data.registry import DATASETS, DRAWN
    from nobackfill.data.text_collections import TEXT_DATASETS

    files: dict[str, Dataset | TextDataset] = {**DATASETS, **TEXT_DATASETS}
    if as_json:
        drawn = [
            {"name": name, "says": description, "layout": [], "counts": {}}
            for name, description in DRAWN.items()
        ]
        rows = [
            {
                "name": name,
                "says": dataset.description,
                "layout": dataset.layout.splitlines(),
                "counts": dict(dataset.counts),
            }
            for name, dataset in files.items()
        ]
        emit({"datasets": [*drawn, *rows]})
        return
    for name, description in DRAWN.items():
        print_item(Text(name, "bold").append(f"  {description}", "not bold"))
        console.print()
    for name, dataset in files.items():
        print_item(Text(name, "bold").append(f"  {dataset.description}", "not bold"))
        for line in dataset.layout.splitlines():
            print_item(f"    {line}", indent="      ")
        if dataset.counts:
            counts = ", ".join(f"{count:,} {_label(key)}" for key, count in dataset.counts.items())
            print_item(f"    {counts}", style="dim")
        console.print()
    print_line("Check a copy with: nobackfill datasets check NAME PATH")


def check_fonts(folder: Path | None, *, as_json: bool) -> None:
    """Prints which fonts of the collection `han` are installed; exits with 1 if some are not."""
    from nobackfill.data.han import installed_fonts

    fonts = installed_fonts("" if folder is None else str(folder))
    missing = sorted({face.package for face, path in fonts.items() if path is None})
    columns = ["typeface", "family", "package", "role", ""]
    rows = [
        [
            face.name,
            face.family,
            face.package,
            "query" if face.is_query else "gallery",
            "✗" if path is None else "",
        ]
        for face, path in fonts.items()
    ]
    number = sum(path is not None for path in fonts.values())
    summary = [f"{number} of {len(fonts)} typefaces are installed."]
    if missing:
        summary.append(f"On Debian, get the others by: apt-get install {' '.join(missing)}")
    facts = {
        "installed": {face.name: str(path) for face, path in fonts.items() if path is not None},
        "missing_packages": missing,
        "passed": not missing,
    }
    page = Page("han", summary=summary, sections=[Section("han", "", [Table(columns, rows)])])
    print_page(page, facts, as_json=as_json)
    if missing:
        raise typer.Exit(NO)


def result_page(check: "Check") -> Page:
    """The counts next to the official ones, the first faulty files, and a conclusion."""
    verdict, more = "differs from the official release", ""
    if check.passed and check.official:
        verdict = "matches the official release"
    elif check.passed:
        verdict, more = "all files exist", "; there are no official counts to compare with"
    opened = f"({check.decoded:,} of {check.counts['images']:,} images opened)"
    return Page(
        check.name,
        summary=[f"{verdict.capitalize()} {opened}{more}."],
        sections=[
            Section(
                check.name,
                "\n".join(_findings(check)),
                [counts_table(check.name, check.counts, check.official)],
            )
        ],
        notes=check.notes,
    )


def counts_table(name: str, counts: Mapping[str, int], official: Mapping[str, int]) -> Table:
    """A row for each count of a copy, next to the official one."""
    columns = [name, "here", "official", ""]
    rows = [
        [
            _label(key),
            f"{counts.get(key, 0):,}",
            f"{official[key]:,}" if key in official else "–",
            "✗" if counts.get(key, 0) != official.get(key, counts.get(key)) else "",
        ]
        for key in {**counts, **official}
    ]
    return Table(columns, rows, frozenset(columns[1:3]))


def watch_files(files: Sequence[str]) -> Iterator[str]:
    """Yields files with a progress bar on stderr."""
    with progress.counting_progress("opening images", len(files), unit="files") as update:
        for done, file in enumerate(files, start=1):
            yield file
            update(done)


def _findings(check: "Check") -> Iterator[str]:
    """Yields a line for each kind of faulty file."""
    kinds = {
        "are missing": check.missing, "cannot be opened": check.undecodable,
        "are not used": check.unused,
    }  # fmt: skip
    for kind, faulty in kinds.items():
        if faulty.number:
            reason = f" ({visible(faulty.reason)})" if faulty.reason else ""
            first = visible(faulty.first or "")
            yield f"{faulty.number:,} files {kind}, the first: {first}{reason}"


def _label(key: str) -> str:
    """Returns the display name of a count."""
    return "gallery images" if key == "gallery" else key.replace("_", " ")
