"""One upgrade from recipe to verdict: train, embed what is searched, evaluate."""

import json
from collections.abc import Iterator
from pathlib import Path

import torch

from nobackfill.config import Recipe, read_recipe, suggest
from nobackfill.data.collection import Collection
from nobackfill.data.collections import make_collection
from nobackfill.embed import Watch, embed, to_vectors
from nobackfill.errors import ConfigError
from nobackfill.evaluation import Evaluation, evaluate
from nobackfill.files import write_text
from nobackfill.space import Space
from nobackfill.train.known import know_old_space
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
        yield from run.train(collection, old, device=device, watch=watch)
    searched = searched_vectors(run, collection, device=device)
    if run.recipe.old.run is not None:
        old_vectors = searched_vectors(
            Run.open(Path(run.recipe.old.run)), collection, device=device
        )
        save_evaluation(folder, evaluate(old_vectors, searched))


def searched_vectors(run: Run, collection: Collection, *, device: torch.device) -> Vectors:
    """The validation vectors of a finished run; made once, then read from its folder."""
    path = run.folder / "validation.parquet"
    if path.exists():
        return load_vectors(path)
    rows = collection.validation_rows()
    vectors = to_vectors(
        embed(run.model(device), collection, rows),
        collection,
        rows,
        space=run.space(collection, parent_space(run, collection)),
    )
    vectors.save(path)
    return vectors


def save_evaluation(folder: Path, evaluation: Evaluation) -> None:
    """Leaves the numbers in the run's folder."""
    write_text(folder / "evaluation.json", json.dumps(evaluation.summary(), indent=2) + "\n")


def embed_collection(
    model: Path, data: Path, *, split: str = "all", device: torch.device
) -> Vectors:
    """Runs the model of a finished run over the [data] of a recipe or of another run.

    Args:
        model: The run's folder.
        data: A recipe, or a run's folder.
        split: "train", "validation" or "all".
        device: What to work on.
    """
    run = Run.open(model)
    recipe = read_recipe(data / "config.toml" if data.is_dir() else data)
    collection = make_collection(recipe.data)
    rows = torch.arange(len(collection.ids))
    if split != "all":
        known = sorted(set(collection.columns["split"].tolist()))
        if split not in known:
            raise ConfigError(f"unknown split `{split}`. {suggest(split, ['all', *known])}")
        rows = rows[torch.from_numpy(collection.columns["split"] == split)]
    return to_vectors(
        embed(run.model(device), collection, rows),
        collection,
        rows,
        space=run.space(collection, parent_space(run, collection)),
    )


def parent_space(run: Run, collection: Collection) -> Space | None:
    """The space that a run's model was made compatible with, if any."""
    if run.recipe.old.run is not None:
        return Run.open(Path(run.recipe.old.run)).space(collection, None)
    if run.recipe.old.vectors is not None:
        return load_vectors(run.recipe.old.vectors).space
    return None
