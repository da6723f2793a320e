"""The training loop, from the first line to the last. No method's name occurs in it."""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from nobackfill.core import distributed
from nobackfill.core.config import TrainConfig
from nobackfill.data.collection import Collection
from nobackfill.data.loader import Batch, Batches, crew_for
from nobackfill.errors import TrainingDiverged
from nobackfill.methods import Method
from nobackfill.models.embed import Watch
from nobackfill.ops.matmul import matrix_products
from nobackfill.training.forward import Images, Sight
from nobackfill.training.new_prototypes import NewSpace
from nobackfill.training.new_prototypes_running import RunningMeans
from nobackfill.training.precision import in_precision, scaler_for

TEXTS = 2**40  # so that which text is drawn has nothing to do with the order of the images


@dataclass(frozen=True)
class Epoch:
    """What one epoch came to.

    Attributes:
        epoch: Its number, the first being 0.
        learning_rate: With which it was trained.
        terms: The mean of each term of the loss.
    """

    epoch: int
    learning_rate: float
    terms: dict[str, float]


def train(
    model: nn.Module,
    method: Method,
    collection: Collection,
    rows: Int[Tensor, " items"],
    config: TrainConfig,
    *,
    sight: Sight | None = None,
    old_model: nn.Module | None = None,
    optimizer: torch.optim.Optimizer | None = None,
    scaler: torch.amp.GradScaler | None = None,
    running: RunningMeans | None = None,
    start: int = 0,
    watch: Watch = iter,
) -> Iterator[Epoch]:
    """Trains `model` and `method` in place and yields after each epoch.

    Progress bars, checkpoints, early stopping and logging are the caller's. All randomness comes
    from `config.seed` and the epoch's number, so a loop that starts at `start`, with the weights,
    the optimiser and the rest of that moment, goes on exactly as one that was never stopped.

    Under torchrun every process sees its part of each batch; what the method gets is gathered.

    Args:
        model: Images in, embeddings out; or images and texts in, both embeddings out.
        method: Embeddings in, terms of the loss out.
        collection: Where the images are.
        rows: Which of them to train on.
        config: How long and how fast.
        sight: What the method is shown of a batch; images alone where it is not given.
        old_model: Embeds the same views for the method, where it shall not use stored vectors.
        optimizer: Of the parameters of both; made by `make_optimizer` where it is not given.
        scaler: Of the gradients, for float16; made where it is not given.
        running: Takes the place of a pass over the training set where new prototypes are wanted.
        start: The first epoch to train.
        watch: Wraps the batches of each epoch, as a progress bar does.
    """
    device = next(model.parameters()).device
    num_classes = int(collection.labels[rows].max()) + 1
    sight = sight or Images(collection, rows)
    optimizer = optimizer or make_optimizer(model, method, config)
    scaler = scaler or scaler_for(config.precision, device)
    if config.compile:
        model.compile()
    seeing = in_precision(model, config.precision)
    learning = distributed.shared(seeing)
    parameters = [*model.parameters(), *method.parameters()]
    crew = crew_for(collection, device)
    embed = partial(sight.embed, seeing, watch=watch, crew=crew)

    for epoch in range(start, config.epochs):
        distributed.agree(model)  # on the running statistics, which each process has its own of
        space = NewSpace(sight, embed, num_classes, running)
        with matrix_products(config.precision):
            method.start_epoch(
                epoch,
                config.epochs,
                new_prototypes=space.prototypes,
                new_embeddings=space.embeddings,
            )
        distributed.agree(method)
        space.forget_embeddings()
        rate = learning_rate(epoch, config)

        learning.train()
        method.train()
        history: list[dict[str, Tensor]] = []
        seed = config.seed * 100_003 + epoch
        chance = torch.Generator().manual_seed(seed ^ TEXTS)
        batches = Batches(
            collection,
            rows,
            config.batch_size,
            torch.Generator().manual_seed(seed),
            items_per_class=config.items_per_class,
            device=device,
            part=distributed.part(),
            crew=crew,
        )
        with matrix_products(config.precision), layers_draw_from(batches.generator, device):
            for number, batch in enumerate(watch(batches)):
                step = step_of(number, len(batches), epoch=epoch, accumulate=config.accumulate)
                with nullcontext() if step.is_due else not_yet(learning):
                    seen = sight.look(learning, batch, chance)
                    old = same_view(old_model, batch)
                    terms = method(seen.new, seen.labels, items=seen.items, **old)
                    terms = {**seen.terms, **terms}
                    loss = torch.stack(list(terms.values())).sum() / step.batches
                    scaler.scale(loss).backward()
                if running is not None:
                    running.add(seen.new, seen.labels)
                history.append({name: term.detach() for name, term in terms.items()})
                if step.is_due:
                    set_rate(optimizer, rate * warmup(step.number, config))
                    scaler.step(optimizer)
                    scaler.update()
                    optimizer.zero_grad()

        means = mean_terms(history)
        check_finite(means, parameters, epoch=epoch, learning_rate=config.learning_rate)
        yield Epoch(epoch, rate, means)


class Step(NamedTuple):
    """The optimiser's step that a batch belongs to.

    Attributes:
        number: Its number, counted from the first epoch on.
        batches: How many make it.
        is_due: Whether this batch is the last of them.
    """

    number: int
    batches: int
    is_due: bool


def step_of(batch: int, batches: int, *, epoch: int, accumulate: int) -> Step:
    r"""The optimiser's step that batch `b` of `B` in epoch `t` belongs to, where `k` make one.

    .. math::
        s = t \lceil B / k \rceil + \lfloor b / k \rfloor

    The last step of an epoch is made of the batches that are left.

    Example:
        >>> [tuple(step_of(batch, 4, epoch=1, accumulate=3)) for batch in (0, 2, 3)]
        [(2, 3, False), (2, 3, True), (3, 1, True)]
    """
    place = batch // accumulate
    first, steps = place * accumulate, -(-batches // accumulate)
    together = min(accumulate, batches - first)
    return Step(epoch * steps + place, together, batch == first + together - 1)


def same_view(old_model: nn.Module | None, batch: Batch) -> dict[str, Float[Tensor, "batch dim"]]:
    """What the old model makes of the very images of a batch, as a method takes it, if wanted."""
    if old_model is None:
        return {}
    return {"old": distributed.gather(seen_by(old_model, batch.images), len(batch.items))}


def mean_terms(history: Sequence[Mapping[str, Float[Tensor, ""]]]) -> dict[str, float]:
    """The mean of each term of the loss over the batches of an epoch."""
    return {name: torch.stack([h[name] for h in history]).mean().item() for name in history[0]}


def check_finite(
    means: Mapping[str, float],
    parameters: Sequence[Tensor],
    *,
    epoch: int,
    learning_rate: float,
) -> None:
    """Raises where an epoch came to a loss or to weights that are not finite."""
    sound = all(parameter.isfinite().all() for parameter in parameters)
    if not sound or not all(math.isfinite(mean) for mean in means.values()):
        raise TrainingDiverged(
            f"wanted finite weights and losses, but in epoch {epoch + 1} the losses are "
            f"{means} and the weights {'finite' if sound else 'are not'}. Lower "
            f"`learning_rate` (now {learning_rate}) and train again."
        )


@contextmanager
def layers_draw_from(generator: torch.Generator | None, device: torch.device) -> Iterator[None]:
    """For a while, layers that drop at random draw from the epoch's seed, in each process others.

    They can only draw from torch's global generators, which are left as they were.
    """
    assert generator is not None
    rank, world = distributed.part()
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.manual_seed(generator.initial_seed() * world + rank)
        yield


def not_yet(model: nn.Module) -> AbstractContextManager[Any]:
    """While gradients are only added up, processes need not tell each other theirs."""
    no_sync: AbstractContextManager[Any] = (
        model.no_sync() if hasattr(model, "no_sync") else nullcontext()  # type: ignore[operator]
    )
    return no_sync


@torch.no_grad()
def seen_by(
    model: nn.Module, images: Float[Tensor, "batch channels height width"]
) -> Float[Tensor, "batch dim"]:
    """What a frozen model makes of images."""
    embeddings: Tensor = model.eval()(images)
    return embeddings


def learning_rate(epoch: int, config: TrainConfig) -> float:
    r"""The learning rate of an epoch.

    .. math::
        \text{cosine:}\quad \eta_t = \tfrac12 \eta_0 (1 + \cos(\pi t / T)), \qquad
        \text{steps:}\quad \eta_t = \eta_0 \cdot 10^{-|\{m : m \le t\}|}

    Example:
        >>> [learning_rate(t, TrainConfig(epochs=4, learning_rate=1.0)) for t in (0, 2)]
        [1.0, 0.5]
    """
    if config.schedule == "cosine":
        scale = (1 + math.cos(math.pi * epoch / config.epochs)) / 2
    else:
        scale = 0.1 ** sum(milestone <= epoch for milestone in config.milestones)
    return config.learning_rate * scale


def warmup(step: int, config: TrainConfig) -> float:
    r"""By how much the learning rate is lowered at one of the first steps.

    .. math::
        w_s = f + (1 - f) \min(1, s / S)

    with the factor `f` and the number `S` of steps that the settings have.

    Example:
        >>> config = TrainConfig(warmup_steps=10, warmup_factor=0.5)
        >>> [warmup(step, config) for step in (0, 5, 10, 99)]
        [0.5, 0.75, 1.0, 1.0]
    """
    if config.warmup_steps == 0:
        return 1.0
    share = min(1.0, step / config.warmup_steps)
    return config.warmup_factor + (1 - config.warmup_factor) * share


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Sets the learning rate of all parameters."""
    for group in optimizer.param_groups:
        group["lr"] = rate


def make_optimizer(
    model: nn.Module, method: nn.Module, config: TrainConfig
) -> torch.optim.Optimizer:
    """The optimiser of the parameters of model and method."""
    parameters = [*model.parameters(), *method.parameters()]
    if config.optimizer in ("adam", "adamw"):
        kind = torch.optim.Adam if config.optimizer == "adam" else torch.optim.AdamW
        return kind(parameters, lr=config.learning_rate, weight_decay=config.weight_decay)
    return torch.optim.SGD(
        parameters,
        lr=config.learning_rate,
        momentum=config.momentum,
        weight_decay=config.weight_decay,
    )
