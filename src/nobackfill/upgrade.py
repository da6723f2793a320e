"""One upgrade from recipe to verdict: train, embed what is searched, evaluate."""

import json
from collections.abc import Iterator
from pathlib import Path

import torch
from jaxtyping import Int
from torch import Tensor

from nobackfill.config import Choice, Recipe, read_recipe, suggest
from nobackfill.data.collection import Collection
from nobackfill.data.collections import make_collection
from nobackfill.embed import Watch, embed, to_vectors
from nobackfill.errors import ConfigError
from nobackfill.evaluation import Evaluation, evaluate
from nobackfill.files import write_text
from nobackfill.train.known import know_old_space, lineage_of, old_model_for
from nobackfill.train.loop import Epoch
from nobackfill.train.run import Lineage, Run
from nobackfill.vectors import Vectors, load_vectors


def choose_device(name: str = "auto") -> torch.device:
    """The device to work on: a GPU where there is one, or the one that is named."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(
            f"wanted to work on the device `{name}`, but torch cannot: {reason}. Pass --device cpu."
        ) from None
    return device


def train_run(
    recipe: Recipe,
    folder: Path,
    *,
    device: torch.device,
    resume: bool = False,
    collection: Collection | None = None,
    watch: Watch = iter,
) -> Iterator[Epoch]:
    """Trains a recipe in a folder, and leaves the vectors of what is searched beside the model.

    Yields after each epoch. Where the recipe names an old run, the folder gets `evaluation.json`.
    """
    run = Run.start(recipe, folder, resume=resume)
    collection = collection or make_collection(run.recipe.data)
    if not run.finished:
        old = know_old_space(run.recipe, collection, device=device, watch=watch)
        yield from run.train(
            collection,
            old,
            device=device,
            lineage=lineage_of(run.recipe, collection),
            old_model=old_model_for(run.recipe, device),
            watch=watch,
        )
    searched_vectors(run, collection, run.recipe.data, device=device)
    if run.recipe.old.run is not None:
        save_evaluation(folder, evaluate_run(run, collection, device=device))


def evaluate_run(run: Run, collection: Collection, *, device: torch.device) -> Evaluation:
    """Compares a finished run with the old run that its recipe names.

    With P-scores, where the recipe names the run of an independent model too.
    """
    old = run.recipe.old

    def searched(one: Run, side: str = "gallery") -> Vectors:
        return searched_vectors(one, collection, run.recipe.data, device=device, side=side)

    is_run = old.independent is not None and Path(old.independent).is_dir()
    return evaluate(
        searched(Run.open(Path(str(old.run)))),
        searched(run),
        query_for_old=searched(run, "query") if run.maps_queries else None,
        independent=searched(Run.open(Path(str(old.independent)))) if is_run else None,
        device=device,
    )


def searched_vectors(
    run: Run, collection: Collection, data: Choice, *, device: torch.device, side: str = "gallery"
) -> Vectors:
    """The validation vectors that a finished run's model makes of a collection.

    Those of the collection it was trained on are made once, then read from its folder.

    Args:
        run: Of the model.
        collection: What to embed.
        data: What the collection was made from, with every default written out.
        device: What to work on.
        side: "gallery", or "query" for what asks the old gallery.
    """
    path = run.folder / ("validation.parquet" if side == "gallery" else "validation_query.parquet")
    is_its_own = data == run.recipe.data
    if is_its_own and path.exists():
        return load_vectors(path)
    vectors = run_model(run, collection, collection.validation_rows(), device=device, side=side)
    if is_its_own:
        vectors.save(path)
    return vectors


def run_model(
    run: Run,
    collection: Collection,
    rows: Int[Tensor, " rows"],
    *,
    device: torch.device,
    side: str = "gallery",
) -> Vectors:
    """Some rows of a collection as a finished run's model sees them."""
    embeddings = embed(run.encoder(device, side), collection, rows)
    dim = embeddings.shape[1]
    meets_old_gallery = side == "query" or not run.maps_queries
    lineage = run.lineage() if meets_old_gallery else Lineage()
    longer = lineage.old_dim is not None and lineage.old_dim < dim
    return to_vectors(
        embeddings,
        collection,
        rows,
        space=run.space(collection, lineage.parent, dim=dim, side=side),
        compatible_dim=lineage.old_dim if longer else None,
    )


def save_evaluation(folder: Path, evaluation: Evaluation) -> None:
    """Leaves the numbers in the run's folder."""
    write_text(folder / "evaluation.json", json.dumps(evaluation.summary(), indent=2) + "\n")


def embed_collection(
    model: Path, data: Path, *, split: str = "all", side: str = "gallery", device: torch.device
) -> Vectors:
    """Runs the model of a finished run over the [data] of a recipe or of another run.

    Args:
        model: The run's folder.
        data: A recipe, or a run's folder.
        split: "train", "validation" or "all".
        side: "gallery", or "query" for what asks the old gallery: the same but for RM.
        device: What to work on.
    """
    if side not in ("query", "gallery"):
        raise ConfigError(f"unknown side `{side}`. {suggest(side, ['query', 'gallery'])}")
    run = Run.open(model)
    recipe = read_recipe(data / "config.toml" if data.is_dir() else data)
    collection = make_collection(recipe.data)
    rows = torch.arange(len(collection.ids))
    if split != "all":
        known = sorted(set(collection.columns["split"].tolist()))
        if split not in known:
            raise ConfigError(f"unknown split `{split}`. {suggest(split, ['all', *known])}")
        rows = rows[torch.from_numpy(collection.columns["split"] == split)]
    if side == "query" and not run.maps_queries:
        side = "gallery"
    return run_model(run, collection, rows, device=device, side=side)
