"""`nobackfill matrix`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from nobackfill.cli.options import (
    Device,
    DropInvalid,
    IdColumn,
    Intersect,
    Json,
    Label,
    Level,
    Pairs,
    Protocol,
    VectorColumn,
    read_all,
    read_truth,
)
from nobackfill.cli.output import print_page
from nobackfill.errors import ConfigError


def matrix(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="OLDEST … NEWEST",
            help="Vectors of the same items by each model (files, folders or patterns).",
        ),
    ],
    names: Annotated[
        str | None,
        typer.Option(help="Names of the models, separated by commas. Default: file names."),
    ] = None,
    independent: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=FILE",
            help="Vectors of a model trained without constraint in place of NAME: for P-scores.",
        ),
    ] = None,
    protocol: Protocol = None,
    id: IdColumn = None,
    vector: VectorColumn = None,
    label: Label = "label",
    drop_invalid: DropInvalid = False,
    pairs: Pairs = None,
    level: Level = None,
    intersect: Intersect = False,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Search every model's gallery with every model's queries: mAP, AC, AM and P-scores."""
    from nobackfill.cli.progress import searching_progress
    from nobackfill.core.device import choose_device
    from nobackfill.evaluation.matrix import check_names, compatibility_matrix
    from nobackfill.report.pages.matrix import matrix_page

    truth = read_truth(pairs, level)
    called = split_names(names, len(files)) if names is not None else model_names(files)
    alone = split_independent(independent or [])
    check_names(called, alone)  # before anything is read
    unconstrained = {f"{name}, independent": file for name, file in alone.items()}
    read = read_all(
        {**dict(zip(called, files, strict=True)), **unconstrained},
        id=id,
        vector=vector,
        label=label,
        drop_invalid=drop_invalid,
    )
    with searching_progress() as progress:
        result = compatibility_matrix(
            {name: read[name] for name in called},
            protocol=protocol,
            ground_truth=truth,
            intersect=intersect,
            independent={name: read[f"{name}, independent"] for name in alone},
            device=choose_device(device),
            progress=progress,
        )
    print_page(matrix_page(result), result.summary(), as_json=json)


def split_names(text: str, count: int) -> list[str]:
    """The names in a list with commas, if they are as many as there are files."""
    names = [name.strip() for name in text.split(",")]
    if len(names) != count:
        raise ConfigError(
            f"--names has {len(names)} names for {count} files: {text}. Separate the names by "
            f"commas."
        )
    return names


def model_names(files: Sequence[Path]) -> list[str]:
    """The stem of each file, with as many of its folders as make it unique, or a number.

    Example:
        >>> model_names([Path("old.npz"), Path("new.npz")])
        ['old', 'new']
        >>> model_names([Path("runs/1/validation.parquet"), Path("runs/2/validation.parquet")])
        ['1/validation', '2/validation']
        >>> model_names([Path("a.npz"), Path("a.parquet"), Path("a-2.npz")])
        ['a', 'a-3', 'a-2']
    """
    parts = [file.with_suffix("").parts for file in files]
    for depth in range(1, max(map(len, parts)) + 1):
        names = ["/".join(part[-depth:]) for part in parts]
        if len(set(names)) == len(names):
            return names
    stems = [file.stem for file in files]
    names = []
    for place, stem in enumerate(stems):
        name, number = stem, 1
        while name in names or (number > 1 and name in stems[place + 1 :]):
            number += 1
            name = f"{stem}-{number}"
        names.append(name)
    return names


def split_independent(texts: Sequence[str]) -> dict[str, Path]:
    """The files in arguments such as `new=free.parquet`, by the names before them."""
    paths: dict[str, Path] = {}
    for text in texts:
        name, separator, file = text.partition("=")
        if not (name and separator and file):
            raise ConfigError(f"--independent must be NAME=FILE, not `{text}`.")
        if name in paths:
            raise ConfigError(
                f"--independent has two files for `{name}`: {paths[name]} and {file}. Leave one "
                f"out."
            )
        paths[name] = Path(file)
    return paths
