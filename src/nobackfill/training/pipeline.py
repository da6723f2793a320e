"""One upgrade from recipe to verdict: trains, embeds the validation items and evaluates."""

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import torch

from nobackfill.core import distributed
from nobackfill.core.config import Recipe
from nobackfill.core.distributed import is_main, wait
from nobackfill.core.locks import lock_folder
from nobackfill.data.collection import Collection
from nobackfill.models.embed import Watch
from nobackfill.training.decoding import DEFAULT_DECODING, Decoding
from nobackfill.training.loop import Epoch
from nobackfill.training.old_model import (
    check_old_model,
    load_old_model,
    make_lineage,
    prepare_old_space,
)
from nobackfill.training.run import Run
from nobackfill.training.run_evaluation import evaluate_tests, has_queries, save_evaluation
from nobackfill.training.run_training import train_in_folder
from nobackfill.training.run_vectors import store_validation_vectors


def train_run(
    recipe: Recipe,
    folder: Path,
    *,
    device: torch.device,
    resume: bool = False,
    collection: Collection | None = None,
    decoding: Decoding = DEFAULT_DECODING,
    watch: Watch = iter,
) -> Iterator[Epoch]:
    """Trains a recipe in a folder, stores the validation vectors and yields after each epoch.

    If the recipe names an old run, the folder gets `evaluation.json`. Under torchrun all processes
    train and embed; the first one evaluates and writes.

    Args:
        recipe: Recipe to train.
        folder: Run folder.
        device: Device to work on.
        resume: Whether to continue a run of the same recipe.
        collection: Collection of [data], if it is open already.
        decoding: Settings for reading image files.
        watch: Wrapper of the batches, such as a progress bar.
    """
    # Open the run and every collection that has something to search.
    run = Run.start(recipe, folder, resume=resume)
    wait()  # until all processes have read the folder
    recipe = run.recipe
    collection = collection or decoding.open(recipe.data, recipe.images)
    tests = {name: decoding.open(choice, recipe.images) for name, choice in recipe.tests.items()}
    tests = {
        name: searched
        for name, searched in {"": collection, **tests}.items()
        if has_queries(searched, recipe)
    }

    if not run.finished:
        # Find errors before the first epoch.
        check_old_model(recipe)
        collection.training_rows(recipe.train.step)  # raises if there is nothing to train on
        for searched in tests.values() if recipe.text is not None else ():
            searched.captions_of(searched.validation_rows())  # raises if a caption is missing

        # Train.
        with lock_folder(folder) if is_main() else nullcontext():
            run = Run.start(recipe, folder, resume=resume)  # read again under the lock
            wait()  # until all processes have read the folder, before the first one writes
            yield from train_in_folder(
                run,
                collection,
                prepare_old_space(recipe, collection, device=device, watch=watch),
                device=device,
                lineage=make_lineage(recipe, collection),
                old_model=load_old_model(recipe, device),
                watch=watch,
            )

    # Embed and evaluate.
    for name, searched in tests.items():
        store_validation_vectors(run, searched, test=name, device=device, watch=watch)
    if is_main() and recipe.old.run is not None and tests:
        with distributed.single_process():
            save_evaluation(folder, evaluate_tests(run, tests, device=device))
    wait()
