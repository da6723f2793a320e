"""`nobackfill embed`."""

from pathlib import Path
from typing import Annotated

import typer

from nobackfill.cli.options import Device, Json, Modality, Seed, Workers


def embed(
    model: Annotated[Path, typer.Argument(help="The folder of a finished run, or of a head.")],
    data: Annotated[
        Path,
        typer.Argument(
            help="What to embed: a recipe or a run folder, whose \\[data] is taken; a .txt file "
            "with a text in each line; for a head, a file of new vectors."
        ),
    ],
    output: Annotated[Path, typer.Option("-o", "--output", help="Where the vectors go.")],
    split: Annotated[str, typer.Option(help="train, validation or all.")] = "all",
    side: Annotated[
        str | None,
        typer.Option(
            help="query: what asks the old gallery, by default of a head and of texts; gallery: "
            "what is stored, by default of a run."
        ),
    ] = None,
    modality: Modality = "modality",
    workers: Workers = None,
    device: Device = "auto",
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Run a model over a collection or texts, or a head over vectors, into a file of vectors."""
    check_model(model)

    from nobackfill.cli.output import print_object
    from nobackfill.core.device import choose_device
    from nobackfill.training.decoding import choose_decoding
    from nobackfill.training.embed import embed_collection

    if (model / "config.json").exists():
        from nobackfill.head import CompatibleHead
        from nobackfill.head.read_files import modality_of
        from nobackfill.vectors import load_vectors

        head = CompatibleHead.from_pretrained(model, device=str(choose_device(device)))
        new = load_vectors(data)
        kinds = modality_of(new, modality)
        vectors = head.transform(new, side=side or "query", modality=kinds)
    elif data.suffix == ".txt":
        from nobackfill.training.embed import embed_sentences, read_sentences

        vectors = embed_sentences(
            model, read_sentences(data), side=side or "query", device=choose_device(device)
        )
    else:
        vectors = embed_collection(
            model,
            data,
            split=split,
            side=side or "gallery",
            decoding=choose_decoding(workers),
            device=choose_device(device),
        )
    vectors.save(output)
    written = {"output": str(output), "items": len(vectors), "dim": vectors.dim}
    print_object(written, as_json=json, text=f"{vectors} written to {output}")


def check_model(folder: Path) -> None:
    """Refuses what is neither a run nor a head."""
    from nobackfill.errors import DataError

    if not any((folder / name).exists() for name in ("config.toml", "config.json")):
        found = "it has neither config.toml nor config.json" if folder.is_dir() else "there is none"
        raise DataError(
            f"wanted the folder of a run or of a head at {folder}, but {found}. Pass what "
            f"`nobackfill train RECIPE -o FOLDER` or `nobackfill fit … -o FOLDER` wrote."
        )
