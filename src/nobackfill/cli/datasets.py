"""`nobackfill datasets` and `nobackfill datasets check NAME PATH`."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from nobackfill.cli.options import Json
from nobackfill.errors import ConfigError


class Action(StrEnum):
    """What to do instead of listing."""

    check = "check"


class Decode(StrEnum):
    """Which images to open."""

    all = "all"
    some = "some"
    none = "none"


def datasets(
    action: Annotated[
        Action | None, typer.Argument(help="Compare a copy with what its authors gave out.")
    ] = None,
    name: Annotated[
        str | None, typer.Argument(help="What to check: a collection, such as market1501.")
    ] = None,
    path: Annotated[Path | None, typer.Argument(help="The folder that it is in.")] = None,
    decode: Annotated[
        Decode, typer.Option(help="Which images to open: all, some (1,000) or none.")
    ] = Decode.some,
    json: Json = False,
) -> None:
    """List the collections that can be read, or check one on disk (exit 1 if it differs)."""
    from nobackfill.cli.datasets_show_datasets import print_check, print_datasets, watch_files
    from nobackfill.data.verify import check_dataset

    if action is None:
        print_datasets(as_json=json)
        return
    if name is None or path is None:
        raise ConfigError(
            f"wanted `nobackfill datasets check NAME PATH`, but {'PATH' if name else 'NAME'} is "
            f"missing. `nobackfill datasets` lists the names."
        )
    result = check_dataset(name, path, decode=decode.value, watch=watch_files)
    print_check(result, as_json=json)
    if not result.passed:
        raise typer.Exit(1)
