"""Options that several commands share."""

from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from nobackfill.data.listing import GroundTruth as Truth
    from nobackfill.vectors import Vectors


def names_in(place: str) -> Callable[[str], list[str]]:
    """Completion of an option's value: the names in a table, which is imported when needed.

    Args:
        place: Module below `nobackfill` and name of the table, such as `methods:METHODS`.
    """

    def complete(incomplete: str) -> list[str]:
        module, _, table = place.partition(":")
        names = getattr(import_module(f"nobackfill.{module}"), table)
        return [name for name in names if name.startswith(incomplete)]

    return complete


Json = Annotated[
    bool, typer.Option("--json", help="Print one JSON object to stdout; progress goes to stderr.")
]
Device = Annotated[str, typer.Option(help="cpu, cuda, cuda:1 …; auto uses a GPU if there is one.")]
Seed = Annotated[int, typer.Option(help="Random seed.")]
OldFile = Annotated[
    Path,
    typer.Option(
        "--old",
        help="Old vectors: a file (.parquet, .csv, .jsonl, .npz, .npy …), a folder of shards, or a "
        "pattern such as 'old/*.parquet'; see docs/files.md.",
    ),
]
NewFile = Annotated[Path, typer.Option("--new", help="New vectors of the same items.")]
IdColumn = Annotated[
    str | None, typer.Option("--id", help="Column of the ids. Default: found by its name.")
]
VectorColumn = Annotated[
    str | None,
    typer.Option(
        "--vector",
        help="Column of the vectors, or what the columns of the dimensions start with. Default: "
        "found by its name.",
    ),
]
DropInvalid = Annotated[
    bool,
    typer.Option("--drop-invalid", help="Leave out vectors that are missing, zero or NaN."),
]
Workers = Annotated[
    int | None,
    typer.Option(help="Number of processes that decode images; by default one per core, up to 16."),
]
Keep = Annotated[
    bool, typer.Option("--keep-images", help="Keep decoded images in memory. They must fit.")
]
Protocol = Annotated[
    str | None,
    typer.Option(
        help="Search protocol: plain (default), leave-one-out, market1501, gldv2, roxford_rparis, "
        "inshop, rstpreid, flickr8k, text_to_image or image_to_text.",
        autocompletion=names_in("evaluation.protocols:PROTOCOLS"),
    ),
]
Label = Annotated[str, typer.Option("--label", "--group", help="Column of the classes.")]
Pairs = Annotated[
    Path | None,
    typer.Option(
        "--pairs",
        "--ground-truth",
        help='Relevant items of each query: lines of {"query": …, "relevant": […]}, a table with '
        "the columns query and relevant (.csv, .tsv, .parquet), or an official gnd_….pkl.",
    ),
]
Top = Annotated[int, typer.Option("--top", "-k", help="Number of results of each query.")]
Intersect = Annotated[
    bool, typer.Option("--intersect", help="Leave out items that are not in every file.")
]
MappedQueries = Annotated[
    Path | None,
    typer.Option(
        "--query-for-old", help="New queries, mapped for the old gallery (`embed --side`)."
    ),
]
Level = Annotated[
    str | None,
    typer.Option(help="Relevance level of an official gnd_….pkl: easy, medium (default) or hard."),
]
Modality = Annotated[
    str,
    typer.Option(help="Column that separates images from texts; each modality gets its own map."),
]


def read_truth(path: Path | None, level: str | None) -> "Truth | None":
    """Reads the ground truth of `--pairs` and `--level`; None without either."""
    if path is None and level is None:
        return None
    from nobackfill.data.ground_truth import check_level, read_ground_truth

    check_level(level, path)
    return read_ground_truth(path, level=level) if path is not None else None


def read_vectors(
    path: Path,
    *,
    id: str | None = None,
    vector: str | None = None,
    drop_invalid: bool = False,
) -> "Vectors":
    """Reads a file of vectors; prints on stderr what was guessed or left out."""
    files = read_all({"file": path}, id=id, vector=vector, drop_invalid=drop_invalid)
    return files["file"]


def read_all(
    paths: Mapping[str, Path | None],
    *,
    id: str | None = None,
    vector: str | None = None,
    label: str | None = None,
    drop_invalid: bool = False,
) -> "dict[str, Vectors]":
    """Reads files of the same items; prints on stderr what was guessed, left out or assumed.

    Raises if no file has the column of labels.

    Args:
        paths: Path of each file, by the name of its option; None if it was not passed.
        id: Column of ids.
        vector: Column of vectors.
        label: Column of labels, which some of the files may lack.
        drop_invalid: Whether to leave out vectors without a direction.
    """
    from nobackfill.cli.output import print_remarks
    from nobackfill.vectors.column_names import Columns
    from nobackfill.vectors.several_files import check_labelled, read_files

    columns = Columns(id, vector, None if label == "label" else label)
    read = read_files(paths, columns, drop_invalid=drop_invalid)
    print_remarks(read.remarks)
    check_labelled(columns, read.vectors)
    return read.vectors
