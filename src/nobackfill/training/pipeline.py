"""One upgrade from recipe to verdict: trains, embeds the validation items and evaluates."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch

from nobackfill.core import distributed
from nobackfill.core.atomic_files import write_text
from nobackfill.core.config import Recipe
from nobackfill.core.distributed import is_main, wait
from nobackfill.core.locks import lock_folder
from nobackfill.core.seeding import seeded
from nobackfill.data.collection import Collection
from nobackfill.evaluation.by_modality import evaluate_modalities
from nobackfill.evaluation.evaluate import Evaluation, evaluate
from nobackfill.evaluation.protocols import protocol_named
from nobackfill.methods import METHODS, Method
from nobackfill.methods.base import ClassifyingMethod
from nobackfill.methods.old_space import OldSpace
from nobackfill.models import DualEncoder
from nobackfill.models.embed import Watch
from nobackfill.training import checkpoint
from nobackfill.training.checkpoint import Stateful
from nobackfill.training.decoding import DEFAULT_DECODING, Decoding
from nobackfill.training.embed import store_validation_vectors, validation_vectors
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
from nobackfill.training.run import Run
from nobackfill.training.schedule import make_optimizer
from nobackfill.vectors import Vectors


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
    if is_main() and recipe.old.run is not None and tests:
        with distributed.single_process():
            save_evaluation(folder, evaluate_tests(run, tests, device=device))
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
    forward_pass = ForwardPass(collection, rows)
    if isinstance(model, DualEncoder):
        forward_pass = ImageTextForwardPass.of(collection, rows, model, recipe.pairs)
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
        running_means = RunningMeans(method.num_classes, model.embedding_dim, **method.averaging)
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


def open_tests(
    recipe: Recipe, decoding: Decoding, collection: Collection | None = None
) -> dict[str, Collection]:
    """Opens the collections of a recipe that have queries; "" is the name of its own data."""
    tests = {"": collection or decoding.open(recipe.data, recipe.images)}
    for name, choice in recipe.tests.items():
        tests[name] = decoding.open(choice, recipe.images)
    if recipe.text is None:
        return {name: test for name, test in tests.items() if test.is_searched}
    return {
        name: test
        for name, test in tests.items()
        if test.captions is not None and len(test.validation_rows()) > 0
    }


def evaluate_tests(
    run: Run, tests: Mapping[str, Collection], *, device: torch.device
) -> dict[str, Any]:
    """Compares a finished run with its old run on several tests.

    The result has the numbers of the first test at its top level. `tests` has those of the other
    tests and relevance levels. With several tests, `mean` has their means, including the P-scores,
    as in the paper.
    """
    if run.recipe.text is not None:
        return evaluate_directions(run, tests, device=device)

    # Evaluate every test at its default level, then at its other levels.
    results = {}
    for name, collection in tests.items():
        results[name] = evaluate_run(run, collection, test=name, device=device)
        for level in sorted(collection.ground_truth.keys() - {collection.level}):
            results[f"{name}_{level}".removeprefix("_")] = evaluate_run(
                run, collection, test=name, level=level, device=device
            )

    # Summarize with the first test at the top.
    first, *others = results
    summary = results[first].summary()
    if others:
        summary["tests"] = {name: results[name].summary() for name in others}
    if len(tests) > 1:
        summary["mean"] = mean_scores([results[name].summary() for name in tests])
    return summary


def evaluate_directions(
    run: Run, tests: Mapping[str, Collection], *, device: torch.device
) -> dict[str, Any]:
    """Does the same for a model of images and texts, in every direction of search.

    The direction from texts to images comes first, if it was evaluated. Besides old/old, new/old
    and new/new, each direction has `old_new`: old queries on the new gallery. `modality_gap` is the
    distance between images and texts.
    """
    results, gaps, notes = dict[str, dict[str, Any]](), dict[str, Any](), list[str]()
    for name, collection in tests.items():
        inputs = _evaluation_inputs(run, collection, test=name, device=device)
        summary = evaluate_modalities(**inputs).summary()
        directions = summary["directions"]
        main = "_to_".join(main_direction(run, collection) or ())
        for direction in sorted(directions, key=lambda direction: direction != main):
            results["_".join(filter(None, (name, direction)))] = directions[direction]
        gaps[name or "data"] = summary["modality_gap"]
        notes += summary["notes"]
    first, *others = results
    return {
        **results[first],
        "direction": first,
        "notes": notes,
        "tests": {name: results[name] for name in others},
        "modality_gap": gaps if len(gaps) > 1 else gaps[next(iter(gaps))],
    }


def mean_scores(summaries: Sequence[Mapping[str, Any]]) -> dict[str, float | None]:
    """Returns the mean of each score over several tests; None if a test lacks it."""
    keys = ("old_old", "new_old", "new_new", "independent", "p_up", "p_comp", "p_1")
    values = {key: [summary[key] for summary in summaries] for key in keys}
    return {
        key: None if any(value is None for value in each) else sum(each) / len(each)
        for key, each in values.items()
    }


def evaluate_run(
    run: Run, collection: Collection, *, test: str = "", level: str = "", device: torch.device
) -> Evaluation:
    """Compares a finished run with the old run of its recipe, on one test and relevance level.

    The result has P-scores if the recipe names the run of an independent model.
    """
    return evaluate(
        **_evaluation_inputs(run, collection, test=test, device=device),
        ground_truth=collection.truth(level),
        modalities=main_direction(run, collection),
    )


def main_direction(run: Run, collection: Collection) -> tuple[str, str] | None:
    """Returns the modalities of query and gallery: texts and images, unless the protocol differs.

    None for a model of images alone.
    """
    if run.recipe.text is None:
        return None
    return protocol_named(collection.protocol)[1].modalities or ("text", "image")


def _evaluation_inputs(
    run: Run, collection: Collection, *, test: str = "", device: torch.device
) -> dict[str, Any]:
    """Returns the arguments of `evaluate` for a finished run; see `evaluate_run`."""
    old = run.recipe.old

    def vectors_by(model: Run, side: str = "gallery") -> Vectors:
        return validation_vectors(
            model, collection, test=test, recipe_run=run, device=device, side=side
        )

    is_run = old.independent is not None and Path(old.independent).is_dir()
    return {
        "old": vectors_by(Run.open(Path(str(old.run)))),
        "new": vectors_by(run),
        "query_for_old": vectors_by(run, "query") if run.maps_queries else None,
        "independent": vectors_by(Run.open(Path(str(old.independent)))) if is_run else None,
        "protocol": collection.protocol,
        "device": device,
    }


def save_evaluation(folder: Path, summary: dict[str, Any]) -> None:
    """Writes the results to `evaluation.json` in the run folder."""
    write_text(folder / "evaluation.json", json.dumps(summary, indent=2) + "\n")
