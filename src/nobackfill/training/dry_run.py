"""Estimates the steps, parameters and memory of a training before it starts."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from nobackfill.core.config import Recipe, TrainConfig
from nobackfill.errors import DataError
from nobackfill.methods import METHODS, Method
from nobackfill.methods.old_space import MEANING
from nobackfill.models import Embedder, make_dual, make_model
from nobackfill.models.base import check_images
from nobackfill.training.decoding import DEFAULT_DECODING, Decoding
from nobackfill.training.jobs import Job
from nobackfill.training.precision import HALF
from nobackfill.training.schedule import highest_rate

BYTES = 4  # size of a float32
ENOUGH = 0.9  # share of the learning rate that a schedule should reach


@dataclass(frozen=True)
class Plan:
    """Estimate of one job."""

    name: str
    folder: str
    is_there: bool  # whether the run is already finished
    problem: str  # reason why the data could not be counted; empty if they could
    counts: Mapping[str, int]  # training images, training classes and searched images
    expected: Mapping[str, int]  # the numbers that the recipe expects
    steps: Mapping[str, int]  # optimiser steps in an epoch and in total
    highest_rate: float | None  # that the schedule reaches; None if the steps are not known
    learning_rate: float  # as the recipe sets it
    parameters: int  # of the model and of a classifier of all classes
    memory: Mapping[str, int]  # bytes by purpose, without those of the libraries
    old: list[str]  # parts of the old model that will be computed

    @property
    def differences(self) -> list[str]:
        """Differences between the data and what the recipe expects."""
        return [
            f"{name.replace('_', ' ')}: {self.counts[name]:,} found, {count:,} expected"
            for name, count in self.expected.items()
            if name in self.counts and self.counts[name] != count
        ]

    @property
    def rate_warning(self) -> str:
        """Sentence about a schedule that stays far below its learning rate; else empty."""
        if self.highest_rate is None or self.highest_rate >= ENOUGH * self.learning_rate:
            return ""
        return (
            f"The schedule reaches only {self.highest_rate / self.learning_rate:.0%} of "
            f"learning_rate = {self.learning_rate:g}: the rate falls, or the training ends, before "
            f'the warm-up does. Lower `warmup_steps`, or set `schedule_start` to "warmup".'
        )

    def summary(self) -> dict[str, Any]:
        """Returns the estimate as a JSON object."""
        return {
            **asdict(self),
            "differences": self.differences,
            "rate_warning": self.rate_warning,
        }


class DataCounts(NamedTuple):
    """Counts of the data of a recipe.

    Attributes:
        counts: Numbers of images, classes and texts, as far as they could be counted.
        shape: Channels, height and width of an image.
        problem: Reason why something could not be counted; empty if everything was.
    """

    counts: dict[str, int]
    shape: tuple[int, ...]
    problem: str = ""


def plan_job(job: Job, *, decoding: Decoding = DEFAULT_DECODING) -> Plan:
    """Estimates a job; lists and counts the data, and opens no image."""
    # Count the data.
    recipe, config = job.recipe, job.recipe.train
    expected = {
        key: value
        for key, value in recipe.expected.items()
        if key in ("train_images", "train_classes", "train_texts") and isinstance(value, int)
    }
    data = count_data(recipe, decoding)
    sizes = {**expected, **data.counts}
    images, classes, texts = (
        sizes.get(key, 0) for key in ("train_images", "train_classes", "train_texts")
    )

    # Count the parameters, with those of a classifier of all classes.
    model = make_model(recipe.model, seed=0, bare=True)
    check_images(model, data.shape)
    whole: nn.Module = model
    if recipe.text is not None:
        whole = make_dual(recipe.model, recipe.text, seed=0, bare=True)
    parameters = sum(parameter.numel() for parameter in whole.parameters())
    parameters += classes * model.embedding_dim

    # Count the steps, and the items that the method compares.
    shown, items = images, images
    if recipe.text is not None:
        by_modality = {"image": images, "text": texts}
        shown = texts if recipe.pairs.texts == "each" else images
        items = sum(by_modality[modality] for modality in recipe.pairs.modalities)
    steps = count_steps(shown, config) if shown else {}

    method = METHODS[recipe.method.name]
    return Plan(
        name=job.name,
        folder=str(job.folder),
        is_there=(job.folder / "model.safetensors").exists(),
        problem=data.problem,
        counts=data.counts,
        expected=expected,
        steps=steps,
        highest_rate=highest_rate(config, steps["each_epoch"]) if steps else None,
        learning_rate=config.learning_rate,
        parameters=parameters,
        memory=estimate_memory(
            model, method, config, data.shape, parameters=parameters, items=items, classes=classes
        ),
        old=[f"{need}: {MEANING[need]}" for need in MEANING if need in method.needs],
    )


def count_data(recipe: Recipe, decoding: Decoding) -> DataCounts:
    """Counts what a recipe trains on and searches, as far as its collections can be opened."""
    counts: dict[str, int] = {}
    shape: tuple[int, ...] = (recipe.images.channels, *recipe.images.shape)
    try:
        collection = decoding.open(recipe.data, recipe.images)
        rows = collection.training_rows(recipe.train.step)
        counts |= {
            "train_images": len(rows),
            "train_classes": len(collection.labels[rows].unique()),
            "searched": len(collection.validation_rows()),
        }
        if recipe.text is not None:
            counts["train_texts"] = len(collection.captions_of(rows).texts)
        shape = collection.shape
        for name, choice in recipe.tests.items():
            searched = decoding.open(choice, recipe.images).validation_rows()
            counts[f"searched_{name}"] = len(searched)
    except DataError as error:
        return DataCounts(counts, shape, str(error))
    return DataCounts(counts, shape)


def estimate_memory(
    model: Embedder,
    method: type[Method],
    config: TrainConfig,
    shape: tuple[int, ...],
    *,
    parameters: int,
    items: int,
    classes: int,
) -> dict[str, int]:
    """Estimates the bytes of a training by purpose.

    Args:
        model: Model of images.
        method: Method.
        config: Settings of the training loop.
        shape: Channels, height and width of an image.
        parameters: Number of parameters of the model and the classifier.
        items: Number of items that the method compares.
        classes: Number of classes.
    """
    half = 2 if config.precision in HALF else 1
    states = 1 if config.optimizer == "sgd" else 2
    memory = {
        "weights, gradients, optimiser": parameters * BYTES * (2 + states),
        "activations": saved_for_backward(model, shape) * config.batch_size // half,
    }
    if method.needs:
        vectors_per_item = len({"embeddings", "independent"} & method.needs)
        vectors = items * vectors_per_item + classes
        memory["of the old model"] = BYTES * model.embedding_dim * vectors
    return memory


def count_steps(images: int, config: TrainConfig) -> dict[str, int]:
    """Counts the optimiser steps in an epoch and in total."""
    whole = max(images // config.batch_size, 1)
    batches = whole if config.items_per_class else -(-images // config.batch_size)
    each = -(-batches // config.accumulate)
    return {"each_epoch": each, "in_all": each * config.epochs}


def saved_for_backward(model: nn.Module, shape: tuple[int, ...]) -> int:
    """Measures the float32 bytes of one image that a forward pass saves for the backward pass."""
    parameters = {parameter.data_ptr() for parameter in model.parameters()}
    sizes: dict[int, int] = {}  # bytes of each storage, by its address

    def record(tensor: Tensor) -> Tensor:
        if tensor.data_ptr() not in parameters:
            storage = tensor.untyped_storage()
            sizes[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(record, lambda tensor: tensor):
        output = model.train()(torch.zeros(2, *shape))  # keeps the storages, and addresses, alive
    del output
    return sum(sizes.values()) // 2
