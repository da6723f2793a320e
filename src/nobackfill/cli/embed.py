"""`nobackfill embed`."""

from pathlib import Path
from typing import Annotated

import typer

from nobackfill.cli.options import (
    Device,
    DropInvalid,
    IdColumn,
    Json,
    Modality,
    Seed,
    VectorColumn,
    Workers,
    read_vectors,
)
from nobackfill.cli.outputs import claim


def embed(
    model: Annotated[Path, typer.Argument(help="Folder of a finished run or of a head.")],
    data: Annotated[
        Path,
        typer.Argument(
            help="Data to embed: a recipe or run folder, whose \\[data] is used; a .txt file with "
            "one text per line; for a run on pairs also a table of id and text; for a head, new "
            "vectors: a file, a folder or a pattern."
        ),
    ],
    output: Annotated[Path, typer.Option("-o", "--output", help="File of vectors to write.")],
    split: Annotated[str, typer.Option(help="Split to embed: train, validation or all.")] = "all",
    old: Annotated[
        Path | None,
        typer.Option(
            help="Old vectors of the same items, for queries of a head that weighs both models."
        ),
    ] = None,
    side: Annotated[
        str | None,
        typer.Option(
            help="query: vectors that search the old gallery (default of a head and of texts); "
            "gallery: vectors to store (default of a run, and of a table of texts)."
        ),
    ] = None,
    modality: Modality = "modality",
    id: IdColumn = None,
    vector: VectorColumn = None,
    drop_invalid: DropInvalid = False,
    workers: Workers = None,
    device: Device = "auto",
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Embed a collection or texts with a model, or map vectors with a head, into a file."""
    check_model(model)
    claim(output, inputs=(*files_of_model(model), *data_read(data)))

    from nobackfill.cli.output import print_object
    from nobackfill.cli.progress import doing, embedding_progress
    from nobackfill.core.device import choose_device
    from nobackfill.errors import ConfigError
    from nobackfill.integrations.text_folder import is_text_run
    from nobackfill.integrations.text_results import embed_with_run
    from nobackfill.training.decoding import choose_decoding
    from nobackfill.training.embed import embed_collection

    if (model / "config.json").exists():
        from nobackfill.head import CompatibleHead
        from nobackfill.head.inputs import modality_of

        head = CompatibleHead.from_pretrained(model, device=str(choose_device(device)))
        new = read_vectors(data, id=id, vector=vector, drop_invalid=drop_invalid)
        stored = old and read_vectors(old, id=id, vector=vector, drop_invalid=drop_invalid)
        with doing("mapping"):
            vectors = head.transform(
                new, old=stored, side=side or "query", modality=modality_of(new, modality)
            )
    elif old is not None:
        raise ConfigError(f"--old is for heads, but {model} is a run. Leave it out.")
    elif is_text_run(model):
        with doing("embedding") as show_step:
            vectors = embed_with_run(
                model, data, side=side, device=choose_device(device), watch=show_step
            )
    elif data.suffix == ".txt":
        from nobackfill.training.embed import embed_sentences, read_sentences

        with doing("embedding"):
            vectors = embed_sentences(
                model, read_sentences(data), side=side or "query", device=choose_device(device)
            )
    else:
        with embedding_progress() as watch:
            vectors = embed_collection(
                model,
                data,
                split=split,
                side=side or "gallery",
                decoding=choose_decoding(workers),
                device=choose_device(device),
                watch=watch,
            )
    vectors.save(output)
    written = {"output": str(output), "items": len(vectors), "dim": vectors.dim}
    text = f"{len(vectors):,} vectors of {vectors.dim:,} dimensions are in {output}."
    print_object(written, as_json=json, text=text)


def files_of_model(folder: Path) -> list[Path]:
    """The files of a run or a head."""
    return [path for path in folder.iterdir() if path.is_file()]


def data_read(data: Path) -> list[Path]:
    """Files and folders that are embedded; of a run folder, only the recipe."""
    is_run = (data / "config.toml").exists()
    return [data / "config.toml"] if is_run else [data]


def check_model(folder: Path) -> None:
    """Raises if a folder contains neither a run nor a head."""
    from nobackfill.core.suggest import suggest_path
    from nobackfill.errors import DataError

    files = ("config.toml", "config.json", "settings.json")
    if not any((folder / name).exists() for name in files):
        has_none = "it has neither config.toml nor config.json"
        reason = has_none if folder.is_dir() else "it does not exist"
        remedy = (
            "Pass a folder that `nobackfill train RECIPE -o FOLDER` or `nobackfill fit … -o "
            "FOLDER` wrote."
        )
        remedy = remedy if folder.is_dir() else suggest_path(folder, remedy)
        raise DataError(f"{folder} is not the folder of a run or a head: {reason}. {remedy}")
