"""Embeds collections and texts with the model of a finished run, and stores validation vectors."""

from collections.abc import Sequence
from pathlib import Path

import torch
from jaxtyping import Int
from torch import Tensor

from nobackfill.core.config import read_sequence
from nobackfill.core.distributed import is_main, wait
from nobackfill.core.suggest import suggest
from nobackfill.data.captions import Captions
from nobackfill.data.collection import Collection
from nobackfill.data.listing import read_text
from nobackfill.errors import ConfigError, DataError
from nobackfill.models.embed import Watch, embed_texts, to_vectors
from nobackfill.training.decoding import DEFAULT_DECODING, Decoding
from nobackfill.training.run import Lineage, Run
from nobackfill.vectors import Vectors, load_vectors
from nobackfill.vectors.records import read_space


def vectors_path(run: Run, test: str = "", side: str = "gallery") -> Path:
    """Returns the file of a run's validation vectors."""
    stem = f"test_{test}" if test else "validation"
    return run.folder / (f"{stem}.parquet" if side == "gallery" else f"{stem}_query.parquet")


def validation_vectors(
    run: Run,
    collection: Collection,
    *,
    test: str = "",
    recipe_run: Run | None = None,
    device: torch.device,
    side: str = "gallery",
    watch: Watch = iter,
) -> Vectors:
    """Returns the validation vectors of a collection by the model of a finished run.

    The recipe of `recipe_run`, by default that of `run`, names the collection: as `test`, or as its
    own data if the name is empty. Vectors of collections that the run's own recipe names are
    computed once and then read from its folder. The side is "gallery", or "query" for queries to
    the old gallery.
    """
    path = vectors_path(run, test, side)
    is_own = (recipe_run or run).test_data(test) == run.test_data(test)
    if is_own and path.exists():
        return load_vectors(path)
    rows = collection.validation_rows()
    vectors = embed_rows(run, collection, rows, device=device, side=side, watch=watch)
    if is_own and is_main():
        vectors.save(path)
    return vectors


def store_validation_vectors(
    run: Run, collection: Collection, *, test: str, device: torch.device, watch: Watch = iter
) -> None:
    """Embeds the validation items of a test in all processes, unless their file exists."""
    for side in ("gallery", "query") if run.maps_queries else ("gallery",):
        is_missing = not vectors_path(run, test, side).exists()
        wait()  # until all processes have checked for the file
        if is_missing:
            validation_vectors(run, collection, test=test, device=device, side=side, watch=watch)
    wait()


def embed_rows(
    run: Run,
    collection: Collection,
    rows: Int[Tensor, " rows"],
    *,
    device: torch.device,
    side: str = "gallery",
    watch: Watch = iter,
) -> Vectors:
    """Embeds rows of a collection with the model of a finished run."""
    collection = collection.seen_as(run.recipe.images)
    embeddings = run.embed(
        collection, rows, modalities=run.modalities, side=side, device=device, watch=watch
    )
    # Only vectors that can search the old gallery carry its lineage.
    dim = embeddings.shape[1]
    searches_old_gallery = side == "query" or not run.maps_queries
    lineage = run.lineage() if searches_old_gallery else Lineage()
    is_longer = lineage.old_dim is not None and lineage.old_dim < dim
    return to_vectors(
        embeddings,
        collection,
        rows,
        modalities=run.modalities,
        space=run.space(collection, lineage.parent, dim=dim, side=side),
        compatible_dim=lineage.old_dim if is_longer else None,
    )


def embed_collection(
    model: Path,
    data: Path,
    *,
    split: str = "all",
    side: str = "gallery",
    decoding: Decoding = DEFAULT_DECODING,
    device: torch.device,
    watch: Watch = iter,
) -> Vectors:
    """Embeds the [data] of a recipe file, or of another run, with the model of a finished run.

    Args:
        model: Run folder of the model.
        data: Recipe file or run folder.
        split: "train", "validation" or "all".
        side: "gallery", or "query" for queries to the old gallery.
        decoding: Settings for reading image files.
        device: Device to work on.
        watch: Wrapper of the batches, such as a progress bar.
    """
    if side not in ("query", "gallery"):
        raise ConfigError(f"unknown side `{side}`. {suggest(side, ['query', 'gallery'])}")
    run = Run.open(model)
    recipe = read_sequence(data / "config.toml" if data.is_dir() else data)[-1]
    collection = decoding.open(recipe.data, run.recipe.images)

    # Select the rows of the split.
    rows = torch.arange(len(collection.ids))
    if split != "all":
        splits = sorted(set(collection.columns["split"].tolist()))
        if split not in splits:
            raise ConfigError(f"unknown split `{split}`. {suggest(split, ['all', *splits])}")
        rows = rows[torch.from_numpy(collection.columns["split"] == split)]

    side = side if run.maps_queries else "gallery"
    return embed_rows(run, collection, rows, device=device, side=side, watch=watch)


def embed_sentences(
    model: Path | str,
    texts: Sequence[str],
    *,
    ids: Sequence[str] | None = None,
    side: str = "query",
    device: torch.device | str = "cpu",
) -> Vectors:
    """Embeds texts of any origin, such as typed queries, with the model of a finished run.

    Args:
        model: Run folder; its recipe must have [text].
        texts: One text for each vector.
        ids: Ids of the texts; by default they are numbered from 0.
        side: "query" for queries to the old gallery; "gallery" for texts that are stored with, or
            compared with, vectors of the same model.
        device: Device to work on.
    """
    run, device = Run.open(Path(model)), torch.device(device)
    if not texts:
        raise DataError("No texts to embed: the list is empty.")
    names = [str(number) for number in range(len(texts))] if ids is None else list(ids)
    count = torch.ones(len(texts), dtype=torch.int64)
    prepared = run.prepare(Captions(list(texts), names, count.cumsum(0) - 1, count))
    side = side if run.maps_queries else "gallery"
    vectors = embed_texts(run.encoder(device, side, modality="text"), prepared).cpu()
    return Vectors(
        names,
        vectors,
        columns={"modality": ["text"] * len(texts), "text": list(texts)},
        space=read_space(vectors_path(run, side=side)),  # the same space as the run's images
    )


def read_sentences(path: Path) -> list[str]:
    """Reads the non-empty lines of a text file."""
    lines = [line.strip() for line in read_text(path, "texts to embed").splitlines()]
    return [line for line in lines if line]
