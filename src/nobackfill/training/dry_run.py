"""Estimates the steps, parameters and memory of a training before it starts."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from nobackfill.core.config import TrainConfig
from nobackfill.errors import DataError
from nobackfill.methods import METHODS
from nobackfill.methods.old_space import MEANING
from nobackfill.models import make_dual, make_model
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


def plan_job(job: Job, *, decoding: Decoding = DEFAULT_DECODING) -> Plan:
    """Estimates a job; lists and counts the data, and opens no image."""
    # Count the data.
    recipe, config = job.recipe, job.recipe.train
    expected = {
        key: value
        for key, value in recipe.expected.items()
        if key in ("train_images", "train_classes", "train_texts") and isinstance(value, int)
    }
    shape: tuple[int, ...] = (recipe.images.channels, *recipe.images.shape)
    problem, counts = "", dict[str, int]()
    try:
        collection = decoding.open(recipe.data, recipe.images)
        rows = collection.training_rows(config.step)
        counts = {
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
        problem = str(error)
    sizes = {**expected, **counts}
    images, classes = sizes.get("train_images", 0), sizes.get("train_classes", 0)

    # Count the parameters.
    model = make_model(recipe.model, seed=0, bare=True)
    check_images(model, shape)
    method, dim = METHODS[recipe.method.name], model.embedding_dim
    weights = classes * dim + sum(parameter.numel() for parameter in model.parameters())
    items = images
    if recipe.text is not None:
        dual = make_dual(recipe.model, recipe.text, seed=0, bare=True)
        weights = classes * dim + sum(parameter.numel() for parameter in dual.parameters())
        by_modality = {"image": images, "text": sizes.get("train_texts", 0)}
        items = sum(by_modality[modality] for modality in recipe.pairs.modalities)

    shown = images
    if recipe.text is not None and recipe.pairs.texts == "each":
        shown = sizes.get("train_texts", 0)
    steps = count_steps(shown, config) if shown else {}

    # Estimate the memory.
    vectors_per_item = len({"embeddings", "independent"} & method.needs)
    half = 2 if config.precision in HALF else 1
    states = 1 if config.optimizer == "sgd" else 2
    memory = {
        "weights, gradients, optimiser": weights * BYTES * (2 + states),
        "activations": saved_for_backward(model, shape) * config.batch_size // half,
        "of the old model": BYTES * dim * (items * vectors_per_item + classes),
    }
    if not method.needs:
        del memory["of the old model"]
    return Plan(
        name=job.name,
        folder=str(job.folder),
        is_there=(job.folder / "model.safetensors").exists(),
        problem=problem,
        counts=counts,
        expected=expected,
        steps=steps,
        highest_rate=highest_rate(config, steps["each_epoch"]) if steps else None,
        learning_rate=config.learning_rate,
        parameters=weights,
        memory=memory,
        old=[f"{need}: {MEANING[need]}" for need in MEANING if need in method.needs],
    )


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
