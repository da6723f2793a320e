"""Options that several commands share, in the same words."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from nobackfill.data.listing import GroundTruth as Truth

Json = Annotated[
    bool, typer.Option("--json", help="One JSON object on stdout; progress goes to stderr.")
]
Device = Annotated[str, typer.Option(help="cpu, cuda, cuda:1 …; auto takes a GPU if there is one.")]
Seed = Annotated[int, typer.Option(help="Of everything that is random, where anything is.")]
OldFile = Annotated[
    Path,
    typer.Option(
        "--old",
        help="Vectors of the old model (.parquet, .safetensors, .npz; or .npy, which has row "
        "numbers for ids, and no labels).",
    ),
]
NewFile = Annotated[
    Path, typer.Option("--new", help="Vectors of the new model, of the same items.")
]
Workers = Annotated[
    int | None,
    typer.Option(help="Processes that decode images; as many as there are cores, up to 16."),
]
Keep = Annotated[
    bool, typer.Option("--keep-images", help="Keep decoded images in memory, if they fit.")
]
Protocol = Annotated[
    str | None,
    typer.Option(
        help="plain (default), leave-one-out, market1501, gldv2, roxford_rparis, inshop, rstpreid, "
        "flickr8k, text_to_image or image_to_text."
    ),
]
GroundTruth = Annotated[
    Path | None,
    typer.Option(
        help="What queries shall find: lines of JSON, a table of pairs, or an official gnd_….pkl."
    ),
]
Pairs = Annotated[
    Path | None,
    typer.Option(
        help='What each query shall find: lines of {"query": …, "relevant": […]}, or a table with '
        "the columns query and relevant (.csv, .tsv, .parquet)."
    ),
]
Level = Annotated[
    str | None, typer.Option(help="Of an official gnd_….pkl: easy, medium (default) or hard.")
]
Modality = Annotated[
    str, typer.Option(help="The column that tells images from texts, each of which gets a map.")
]


def read_truth(path: Path | None, level: str | None) -> "Truth | None":
    """Reads the ground truth of `--ground-truth` and `--level`; None without either."""
    if path is None and level is None:
        return None
    from nobackfill.data.ground_truth import check_level, read_ground_truth

    check_level(level, path)
    return read_ground_truth(path, level=level) if path is not None else None
