"""Trains the model of a run folder, from its last finished epoch to `model.safetensors`."""

import json
import platform
import sys
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime

import numpy as np
import torch
from jaxtyping import Int
from safetensors.torch import save_file
from torch import Tensor, nn

import nobackfill
from nobackfill.core.atomic_files import replacing, write_text
from nobackfill.core.config import Recipe, to_toml
from nobackfill.core.distributed import is_main, wait
from nobackfill.core.seeding import seeded
from nobackfill.data.collection import Collection
from nobackfill.methods import METHODS, Method
from nobackfill.methods.base import ClassifyingMethod
from nobackfill.methods.old_space import OldSpace
from nobackfill.models import DualEncoder
from nobackfill.models.embed import Watch
from nobackfill.training.checkpoint import (
    Stateful,
    load_state,
    resumable_write,
    save_state,
    write_metrics,
)
from nobackfill.training.forward import ForwardPass, ImageTextForwardPass
from nobackfill.training.loop import Epoch, make_optimizer, train
from nobackfill.training.new_prototypes import RunningMeans
from nobackfill.training.precision import scaler_for
from nobackfill.training.run import Lineage, Run


def train_in_folder(
    run: Run,
    collection: Collection,
    old: OldSpace,
    *,
    device: torch.device,
    lineage: Lineage,
    old_model: nn.Module | None = None,
    watch: Watch = iter,
) -> Iterator[Epoch]:
    """Trains a run to the end and yields after each epoch; does nothing if it is finished.

    Args:
        run: Run to train.
        collection: Collection that holds the training images.
        old: Parts of the old model that the method needs.
        device: Device to train on.
        lineage: Facts about the old model to store in the folder.
        old_model: Old model that embeds the augmented images of each batch, if any.
        watch: Wrapper of the batches, such as a progress bar.
    """
    if run.finished:
        return
    recipe, folder, config = run.recipe, run.folder, run.recipe.train

    # Build the model, the method and everything else that has a state.
    rows = collection.training_rows(config.step)
    model = run.make_model(seed=config.seed).to(device)
    forward_pass = make_forward_pass(recipe, model, collection, rows)
    method = make_method(run, old.to(device), int(collection.labels[rows].max()) + 1)
    method.to(device)
    optimizer = make_optimizer(model, method, config)
    scaler = scaler_for(config.precision, device)
    running_means = None
    parts: dict[str, Stateful] = {"model": model, "method": method, "optimizer": optimizer}
    if config.precision == "float16":
        parts["scaler"] = scaler
    if config.new_prototypes == "running":
        running_means = RunningMeans(method.num_classes, model.embedding_dim).to(device)
        parts["running"] = running_means

    # Continue after the last finished epoch.
    history = load_state(folder, parts, device)
    if is_main():
        write_text(folder / "config.toml", to_toml(recipe))
        write_text(folder / "lineage.json", json.dumps(asdict(lineage), indent=2))
        write_text(folder / "environment.json", json.dumps(environment(device), indent=2))
        write_metrics(folder, history)  # an interrupted run may lack the last line

    # Train, and save the state after each epoch.
    for epoch in train(
        model, method, collection, rows, config, forward_pass=forward_pass, old_model=old_model,
        optimizer=optimizer, scaler=scaler, running_means=running_means, start=len(history),
        watch=watch,
    ):  # fmt: skip
        history.append(epoch)
        if is_main():
            save_state(folder, parts, history)
        yield epoch

    # Write the finished model.
    if is_main():
        with resumable_write("the finished model", folder):
            save_weights(run, model, method)
    wait()


def make_method(run: Run, old: OldSpace, num_classes: int) -> Method:
    """Creates the method of a run, seeded by its recipe."""
    recipe = run.recipe
    with seeded(recipe.train.seed + 1):
        method = METHODS[recipe.method.name](old, num_classes, **recipe.method.options)
    if isinstance(method, ClassifyingMethod):
        method.classifies = run.has_classifier
        if "smoothing" not in recipe.method.options:
            method.smoothing = recipe.train.smoothing
    return method


def make_forward_pass(
    recipe: Recipe, model: nn.Module, collection: Collection, rows: Int[Tensor, " rows"]
) -> ForwardPass:
    """Creates the forward pass for a model of images, or of images and texts."""
    if isinstance(model, DualEncoder):
        return ImageTextForwardPass.of(collection, rows, model, recipe.pairs)
    return ForwardPass(collection, rows)


def save_weights(run: Run, model: nn.Module, method: Method) -> None:
    """Writes the finished model and method, then removes the state to resume from."""
    tensors = {f"model.{key}": value for key, value in model.state_dict().items()}
    tensors |= {f"method.{key}": value for key, value in method.state_dict().items()}
    with replacing(run.weights) as unfinished:
        save_file({key: t.detach().cpu().contiguous() for key, t in tensors.items()}, unfinished)
    (run.folder / "state.pt").unlink(missing_ok=True)


def environment(device: torch.device) -> dict[str, str | int]:
    """Returns versions, date and hardware of this process."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "nobackfill": nobackfill.__version__,
        "python": sys.version.split()[0],
        "torch": torch.__version__,
        "numpy": np.__version__,
        "platform": platform.platform(),
        "device": str(device),
        "device_name": torch.cuda.get_device_name() if device.type == "cuda" else "cpu",
        "threads": torch.get_num_threads(),
    }
