"""Options of the gallery commands, and the gallery that they open."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nobackfill.cli.options import names_in

if TYPE_CHECKING:
    from nobackfill.gallery.stores.base import Store

Uri = Annotated[
    str,
    typer.Argument(
        help="Gallery: flat://FILE, faiss://FILE, usearch://FILE, lancedb://FOLDER/TABLE, "
        "qdrant:FOLDER, qdrant://HOST/COLLECTION, pgvector://HOST/DATABASE/TABLE, milvus:FILE."
    ),
]
Name = Annotated[str, typer.Option(help="Name of the new vectors.")]
NewName = Annotated[
    str | None, typer.Option("--name", help="Name of new vectors, to use in place of the old ones.")
]
Assume = Annotated[
    str | None,
    typer.Option(
        help="Model of the old vectors, if nothing declares it: a space.json, a run, a file of its "
        "vectors, or a fingerprint."
    ),
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Print what would be written, and write nothing.")
]
# of `gallery switch`
Strict = Annotated[
    bool,
    typer.Option(
        "--strict", help="Require a model measured to be compatible, and vectors of every item."
    ),
]
Partial = Annotated[
    bool,
    typer.Option(
        "--partial",
        help="Serve vectors of a part of the items, for a service that searches the old ones too.",
    ),
]

# of `gallery backfill`
NewVectors = Annotated[
    Path | None,
    typer.Option("--new", "--vectors", help="File of new vectors of the items of the plan."),
]

# of `gallery plan`
PlanFile = Annotated[Path, typer.Option("-o", "--output", help="Output: a .parquet file.")]
PlanPage = Annotated[
    Path | None, typer.Option(help="Write a page with the curves here, also as .md and .json.")
]
Label = Annotated[str | None, typer.Option("--label", "--group", help="Column of the classes.")]
Traffic = Annotated[str | None, typer.Option(help="Column with the traffic of each item.")]
Order = Annotated[
    str,
    typer.Option(
        help="planned, informed (by new vectors too), uncertainty or random.",
        autocompletion=names_in("gallery.planning.plan:ORDERS"),
    ),
]
Rate = Annotated[float | None, typer.Option(help="Number of items embedded per second.")]
Cost = Annotated[float | None, typer.Option(help="Cost of embedding one item.")]
OneSpace = Annotated[
    bool | None,
    typer.Option(
        help="Whether old and new vectors are of one space; by default as the files declare."
    ),
]


@contextmanager
def opened(
    uri: str, name: str | None = None, *, read_only: bool = True
) -> Iterator[tuple["Store", str]]:
    """Opens a gallery; yields it and its collection `name`, or the owner's if that is None."""
    from nobackfill.gallery.stores import open_store
    from nobackfill.gallery.stores.base import ours

    with open_store(uri, read_only=read_only) as store:
        yield store, store.main if name is None else ours(store.main, name)


def files_of_gallery(uri: str) -> list[Path]:
    """Files and folders of a gallery on this machine, and the file of new vectors beside it."""
    from nobackfill.gallery.stores.uri import read_uri

    read = read_uri(uri)
    path = Path(read.path)
    if read.host or not read.path:
        return []
    below = [path.with_name(f"{path.name}{suffix}") for suffix in (".nobackfill", ".lance")]
    return [file for file in (path, *below) if file.exists()]
