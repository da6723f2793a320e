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
from nobackfill.methods import METHODS
from nobackfill.space import read_space
from nobackfill.train.known import know_old_space, known_dimension, old_model_for
from nobackfill.train.loop import Epoch
from nobackfill.train.run import Run
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
        old_model = old_model_for(run.recipe, device)
        yield from run.train(collection, old, device=device, old_model=old_model, watch=watch)
    searched_vectors(run, collection, run.recipe.data, device=device)
    if run.recipe.old.run is not None:
        save_evaluation(folder, evaluate_run(run, collection, device=device))


def evaluate_run(
    run: Run, collection: Collection, *, device: torch.device, independent: Vectors | None = None
) -> Evaluation:
    """Compares a finished run with the old run that its recipe names.

    Args:
        run: Of the new model.
        collection: What it was trained on, and what is searched.
        device: What to work on.
        independent: Vectors of a new model trained without constraint, for the P-scores.
    """
    data, old_run = run.recipe.data, Run.open(Path(str(run.recipe.old.run)))
    mapped = None
    if run.sides().differ:
        mapped = searched_vectors(run, collection, data, device=device, side="query")
    return evaluate(
        searched_vectors(old_run, collection, data, device=device),
        searched_vectors(run, collection, data, device=device),
        query_for_old=mapped,
        independent=independent,
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
    dim, old_dim = embeddings.shape[1], known_dimension(run.recipe)
    meets_old_gallery = side == "query" or not run.sides().differ
    longer = meets_old_gallery and old_dim is not None and old_dim < dim
    parent = parent_of(run, collection) if meets_old_gallery else None
    return to_vectors(
        embeddings,
        collection,
        rows,
        space=run.space(collection, parent, dim=dim, side=side),
        compatible_dim=old_dim if longer else None,
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
    if side == "query" and not run.sides().differ:
        side = "gallery"
    return run_model(run, collection, rows, device=device, side=side)


def parent_of(run: Run, collection: Collection) -> str | None:
    """The fingerprint of the space that a run's model was made compatible with, if any."""
    if not METHODS[run.recipe.method.name].needs:
        return None
    recorded = read_space(run.folder / "validation.parquet")
    if recorded is not None and not run.sides().differ:
        return recorded.parent
    if run.recipe.old.run is not None:
        old = Run.open(Path(run.recipe.old.run))
        return old.space(collection, None, dim=old.dim).fingerprint
    space = load_vectors(str(run.recipe.old.vectors)).space
    return space.fingerprint if space else None
