"""One upgrade from recipe to verdict: train, embed what is searched, evaluate."""

import json
from collections.abc import Iterator
from pathlib import Path

import torch

from nobackfill.config import Recipe
from nobackfill.data.collection import Collection
from nobackfill.data.collections import make_collection
from nobackfill.embed import Watch, embed, to_vectors
from nobackfill.evaluation import Evaluation, evaluate
from nobackfill.files import write_text
from nobackfill.train.known import know_old_space
from nobackfill.train.loop import Epoch
from nobackfill.train.run import Run
from nobackfill.vectors import Vectors, load_vectors


def choose_device(name: str = "auto") -> torch.device:
    """The device to work on: a GPU where there is one, or the one that is named."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(name)


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
        yield from run.train(collection, old, device=device, watch=watch)
    searched = searched_vectors(run, collection, device=device)
    if run.recipe.old.run is not None:
        old_vectors = searched_vectors(Run.open(Path(run.recipe.old.run)), collection, device=device)
        save_evaluation(folder, evaluate(old_vectors, searched))


def searched_vectors(run: Run, collection: Collection, *, device: torch.device) -> Vectors:
    """The validation vectors of a finished run; made once, then read from its folder."""
    path = run.folder / "validation.parquet"
    if path.exists():
        return load_vectors(path)
    rows = collection.validation_rows()
    parent = None
    if run.recipe.old.run is not None:
        parent = Run.open(Path(run.recipe.old.run)).space(collection, None)
    vectors = to_vectors(
        embed(run.model(device), collection, rows),
        collection,
        rows,
        space=run.space(collection, parent),
    )
    vectors.save(path)
    return vectors


def save_evaluation(folder: Path, evaluation: Evaluation) -> None:
    """Leaves the numbers in the run's folder."""
    write_text(folder / "evaluation.json", json.dumps(evaluation.summary(), indent=2) + "\n")
