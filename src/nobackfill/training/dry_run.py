"""What a training will do and cost, told before it starts."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from nobackfill.core.config import Recipe, TrainConfig
from nobackfill.errors import DataError
from nobackfill.methods import METHODS
from nobackfill.methods.old_space import MEANING
from nobackfill.models import make_dual, make_model
from nobackfill.training.decoding import DEFAULT_DECODING, Decoding
from nobackfill.training.jobs import Job
from nobackfill.training.precision import HALF

BYTES = 4  # of a number in float32


@dataclass(frozen=True)
class Plan:
    """What one job will do.

    Attributes:
        name: Of the job.
        folder: Where its run will be.
        is_there: Whether its run is finished already.
        problem: Why the data could not be counted; empty where they could.
        counts: Training images and classes, what is searched.
        expected: The same as far as the recipe expects them.
        steps: Of the optimiser: in an epoch, and in all.
        parameters: Of the model and of a classifier of all classes.
        memory: In bytes, by what for: an estimate without the libraries' own.
        old: What will be computed of the old model.
    """

    name: str
    folder: str
    is_there: bool
    problem: str
    counts: Mapping[str, int]
    expected: Mapping[str, int]
    steps: Mapping[str, int]
    parameters: int
    memory: Mapping[str, int]
    old: list[str]

    @property
    def differences(self) -> list[str]:
        """Where the data are not what the recipe expects."""
        return [
            f"{name.replace('_', ' ')}: {self.counts[name]:,} found, {wanted:,} expected"
            for name, wanted in self.expected.items()
            if name in self.counts and self.counts[name] != wanted
        ]

    def summary(self) -> dict[str, Any]:
        """As it goes into JSON."""
        return {**asdict(self), "differences": self.differences}


def plan_job(job: Job, *, decoding: Decoding = DEFAULT_DECODING) -> Plan:
    """What a job will do; the data are listed and counted, and no image is opened."""
    recipe, config = job.recipe, job.recipe.train
    expected = {
        key: value
        for key, value in recipe.expected.items()
        if key in ("train_images", "train_classes") and isinstance(value, int)
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
        if collection.images is None:
            shape = tuple(collection.view(rows[:1]).shape[1:])
        for name, choice in recipe.tests.items():
            searched = decoding.open(choice, recipe.images).validation_rows()
            counts[f"searched_{name}"] = len(searched)
    except DataError as error:
        problem = str(error)
    wanted = {**expected, **counts}
    images, classes = wanted.get("train_images", 0), wanted.get("train_classes", 0)
    steps = count_steps(images, config) if images else {}
    model = make_model(recipe.model, seed=0, bare=True)
    method, dim = METHODS[recipe.method.name], model.embedding_dim
    weights = count_weights(model) + classes * dim
    if recipe.text is not None:
        weights += count_weights(make_dual(recipe.model, recipe.text, seed=0, bare=True).text)
    items = count_items(recipe, images, counts.get("train_texts", 0))
    kept = {"embeddings", "independent"} & method.needs
    half = 2 if config.precision in HALF else 1
    states = 1 if config.optimizer == "sgd" else 2
    memory = {
        "weights, gradients, optimiser": weights * BYTES * (2 + states),
        "activations": saved_for_backward(model, shape) * config.batch_size // half,
        "of the old model": BYTES * dim * (items * len(kept) + classes),
    }
    return Plan(
        name=job.name,
        folder=str(job.folder),
        is_there=(job.folder / "model.safetensors").exists(),
        problem=problem,
        counts=counts,
        expected=expected,
        steps=steps,
        parameters=weights,
        memory=memory if method.needs else {k: v for k, v in memory.items() if "old" not in k},
        old=[f"{need}: {MEANING[need]}" for need in MEANING if need in method.needs],
    )


def count_weights(model: nn.Module) -> int:
    """How many numbers a model learns, or keeps as they are."""
    return sum(parameter.numel() for parameter in model.parameters())


def count_items(recipe: Recipe, images: int, texts: int) -> int:
    """Of how many items the method is given old vectors."""
    shown = ("image",) if recipe.text is None else recipe.pairs.modalities
    return sum({"image": images, "text": texts}[one] for one in shown)


def count_steps(images: int, config: TrainConfig) -> dict[str, int]:
    """How often the optimiser will step."""
    whole = max(images // config.batch_size, 1)
    batches = whole if config.items_per_class else -(-images // config.batch_size)
    each = -(-batches // config.accumulate)
    return {"each_epoch": each, "in_all": each * config.epochs}


def saved_for_backward(model: nn.Module, shape: tuple[int, ...]) -> int:
    """How many bytes of one image wait for the backward pass, in float32; found by a trial."""
    seen: set[int] = set()
    parameters = {parameter.data_ptr() for parameter in model.parameters()}
    total = 0

    def note(tensor: Tensor) -> Tensor:
        nonlocal total
        place = tensor.untyped_storage().data_ptr()
        if place not in seen and tensor.data_ptr() not in parameters:
            seen.add(place)
            total += tensor.untyped_storage().nbytes()
        return tensor

    images = torch.zeros(2, *shape)
    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        kept = model.train()(images)  # alive until counted, so that no place is used twice
    del kept
    return total // 2
