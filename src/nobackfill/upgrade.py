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
from nobackfill.train.known import know_old_space, known_dimension
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
    data = run.recipe.data
    searched = searched_vectors(run, collection, data, device=device)
    if run.recipe.old.run is not None:
        old_run = Run.open(Path(run.recipe.old.run))
        old_vectors = searched_vectors(old_run, collection, data, device=device)
        save_evaluation(folder, evaluate(old_vectors, searched))


def searched_vectors(
    run: Run, collection: Collection, data: Choice, *, device: torch.device
) -> Vectors:
    """The validation vectors that a finished run's model makes of a collection.

    Those of the collection it was trained on are made once, then read from its folder.

    Args:
        run: Of the model.
        collection: What to embed.
        data: What the collection was made from, with every default written out.
        device: What to work on.
    """
    path = run.folder / "validation.parquet"
    is_its_own = data == run.recipe.data
    if is_its_own and path.exists():
        return load_vectors(path)
    vectors = run_model(run, collection, collection.validation_rows(), device=device)
    if is_its_own:
        vectors.save(path)
    return vectors


def run_model(
    run: Run, collection: Collection, rows: Int[Tensor, " rows"], *, device: torch.device
) -> Vectors:
    """Some rows of a collection as a finished run's model sees them."""
    dim, old_dim = run.recipe.model.options["embedding_dim"], known_dimension(run.recipe)
    return to_vectors(
        embed(run.model(device), collection, rows),
        collection,
        rows,
        space=run.space(collection, parent_of(run, collection)),
        compatible_dim=old_dim if old_dim is not None and old_dim < dim else None,
    )


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
    return run_model(run, collection, rows, device=device)


def parent_of(run: Run, collection: Collection) -> str | None:
    """The fingerprint of the space that a run's model was made compatible with, if any."""
    if not METHODS[run.recipe.method.name].needs:
        return None
    recorded = read_space(run.folder / "validation.parquet")
    if recorded is not None:
        return recorded.parent
    if run.recipe.old.run is not None:
        return Run.open(Path(run.recipe.old.run)).space(collection, None).fingerprint
    space = load_vectors(str(run.recipe.old.vectors)).space
    return space.fingerprint if space else None
