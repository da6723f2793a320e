"""One upgrade from recipe to verdict: trains, embeds the validation items and evaluates."""

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import torch

from nobackfill.core import distributed
from nobackfill.core.config import Recipe
from nobackfill.core.distributed import is_main, wait
from nobackfill.core.locks import lock_folder
from nobackfill.core.seeding import seeded
from nobackfill.data.collection import Collection
from nobackfill.methods import METHODS, Method
from nobackfill.methods.base import ClassifyingMethod
from nobackfill.methods.old_space import OldSpace
from nobackfill.models import DualEncoder
from nobackfill.models.aptm.model import Aptm
from nobackfill.models.base import check_images
from nobackfill.models.embed import Watch
from nobackfill.training import checkpoint
from nobackfill.training.aptm import AptmForwardPass
from nobackfill.training.checkpoint import Stateful
from nobackfill.training.decoding import DEFAULT_DECODING, Decoding
from nobackfill.training.embed import store_validation_vectors
from nobackfill.training.expected import expects_results
from nobackfill.training.forward import ForwardPass, ImageTextForwardPass
from nobackfill.training.loop import Epoch, train
from nobackfill.training.new_prototypes import RunningMeans
from nobackfill.training.old_model import (
    check_old_model,
    initial_seed,
    load_old_model,
    make_lineage,
    parent_seed,
    prepare_old_space,
)
from nobackfill.training.precision import scaler_for
from nobackfill.training.results import (
    evaluate_alone,
    evaluate_tests,
    open_tests,
    save_evaluation,
)
from nobackfill.training.run import Run
from nobackfill.training.schedule import make_optimizer


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
        folder: Run folder; with `resume`, one of the same recipe.
        device: Device to work on.
        resume: Whether to continue an unfinished run.
        collection: Collection of [data], if it is open already.
        decoding: Settings for reading image files.
        watch: Wrapper of the batches, such as a progress bar.
    """
    # Open the run and every collection that has something to search.
    run = Run.start(recipe, folder, resume=resume)
    wait()  # until all processes have read the folder
    recipe = run.recipe
    collection = collection or decoding.open(recipe.data, recipe.images)
    tests = open_tests(recipe, decoding, collection)

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
            yield from train_in_folder(run, collection, device=device, watch=watch)

    # Embed and evaluate.
    for name, searched in tests.items():
        store_validation_vectors(run, searched, test=name, device=device, watch=watch)
    if is_main() and tests and (recipe.old.run is not None or expects_results(recipe)):
        with distributed.single_process():
            measure = evaluate_alone if recipe.old.run is None else evaluate_tests
            save_evaluation(folder, measure(run, tests, device=device))
    wait()


def train_in_folder(
    run: Run, collection: Collection, *, device: torch.device, watch: Watch = iter
) -> Iterator[Epoch]:
    """Trains a run to the end and yields after each epoch; does nothing if it is finished."""
    if run.finished:
        return
    recipe, folder, config = run.recipe, run.folder, run.recipe.train

    # Get what the method needs of the old model.
    old = prepare_old_space(recipe, collection, device=device, watch=watch)
    lineage = make_lineage(recipe, collection)
    old_model = load_old_model(recipe, device)

    # Build the model, the method and everything else that has a state.
    rows = collection.training_rows(config.step)
    weights_seed = initial_seed(recipe, parent_seed(recipe.old))
    model = run.make_model(seed=weights_seed).to(device)
    check_images(model.image if isinstance(model, DualEncoder) else model, collection.shape)
    forward_pass = ForwardPass(collection, rows)
    if isinstance(model, DualEncoder):
        kind = AptmForwardPass if isinstance(model, Aptm) else ImageTextForwardPass
        forward_pass = kind.of(collection, rows, model, recipe.pairs)
    num_classes = int(collection.labels[rows].max()) + 1
    method = make_method(run, old.to(device), num_classes, seed=weights_seed + 1)
    method.to(device)
    optimizer = make_optimizer(model, method, config)
    scaler = scaler_for(config.precision, device)
    running_means = None
    parts: dict[str, Stateful] = {"model": model, "method": method, "optimizer": optimizer}
    if config.precision == "float16":
        parts["scaler"] = scaler
    if config.new_prototypes == "running":
        compared = method.compared(torch.zeros(1, model.embedding_dim, device=device))
        running_means = RunningMeans(method.num_classes, compared.shape[1], **method.averaging)
        running_means.to(device)
        parts["running"] = running_means

    # Continue after the last finished epoch.
    history = checkpoint.load_state(folder, parts, device)
    if is_main():
        checkpoint.write_settings(run, lineage, device)
        checkpoint.write_metrics(folder, history)  # an interrupted run may lack the last line

    # Train, and save the state after each epoch.
    for epoch in train(
        model, method, collection, rows, config, forward_pass=forward_pass, old_model=old_model,
        optimizer=optimizer, scaler=scaler, running_means=running_means, start=len(history),
        watch=watch,
    ):  # fmt: skip
        history.append(epoch)
        if is_main():
            checkpoint.save_state(folder, parts, history)
        yield epoch

    # Write the finished model.
    if is_main():
        checkpoint.save_weights(run, model, method)
    wait()


def make_method(run: Run, old: OldSpace, num_classes: int, *, seed: int) -> Method:
    """Creates the method of a run."""
    recipe = run.recipe
    with seeded(seed):
        method = METHODS[recipe.method.name](old, num_classes, **recipe.method.options)
    if isinstance(method, ClassifyingMethod):
        method.classifies = run.has_classifier
        if "smoothing" not in recipe.method.options:
            method.smoothing = recipe.train.smoothing
    return method
