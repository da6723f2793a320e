"""The training loop, the same for every method."""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

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
from nobackfill.ops.matmul import matmul_precision
from nobackfill.training.forward import ForwardPass
from nobackfill.training.new_prototypes import NewSpace, RunningMeans
from nobackfill.training.precision import in_precision, scaler_for
from nobackfill.training.schedule import learning_rate, make_optimizer, set_rate, warmup

TEXT_SEED = 2**40  # makes the choice of texts independent of the order of the images


@dataclass(frozen=True)
class Epoch:
    """Result of one epoch."""

    epoch: int  # starting at 0
    learning_rate: float
    terms: dict[str, float]  # mean of each loss term


def train(
    model: nn.Module,
    method: Method,
    collection: Collection,
    rows: Int[Tensor, " items"],
    config: TrainConfig,
    *,
    forward_pass: ForwardPass | None = None,
    old_model: nn.Module | None = None,
    optimizer: torch.optim.Optimizer | None = None,
    scaler: torch.amp.GradScaler | None = None,
    running_means: RunningMeans | None = None,
    start: int = 0,
    watch: Watch = iter,
) -> Iterator[Epoch]:
    """Trains `model` and `method` in place and yields after each epoch.

    The caller adds progress bars, checkpoints, early stopping and logging. All randomness comes
    from `config.seed` and the epoch number: a loop that starts at `start` with the weights and the
    optimiser state of that moment continues exactly as one that never stopped.

    Under torchrun every process embeds its part of each batch; the method gets the whole batch.

    Args:
        model: Network from images to embeddings, or from images and texts to both embeddings.
        method: Module from embeddings to loss terms.
        collection: Collection that holds the images.
        rows: Rows of the training images.
        config: Training settings.
        forward_pass: Forward pass of a batch; `ForwardPass` by default.
        old_model: Old model that embeds the augmented images of each batch, in place of the stored
            old vectors.
        optimizer: Optimiser of model and method; that of `make_optimizer` by default.
        scaler: Gradient scaler for float16.
        running_means: Class means of the training batches, in place of new prototypes from a pass
            over the training set.
        start: First epoch to train.
        watch: Wrapper of the batches of each epoch, such as a progress bar.
    """
    # Set up what all epochs share.
    device = next(model.parameters()).device
    num_classes = int(collection.labels[rows].max()) + 1
    forward_pass = forward_pass or ForwardPass(collection, rows)
    optimizer = optimizer or make_optimizer(model, method, config)
    scaler = scaler or scaler_for(config.precision, device)
    if config.compile:
        model.compile()
    cast_model = in_precision(model, config.precision)
    shared_model = distributed.average_gradients(cast_model)
    no_sync = getattr(shared_model, "no_sync", nullcontext)
    parameters = [*model.parameters(), *method.parameters()]
    crew = crew_for(collection, device)
    embed = partial(forward_pass.embed, cast_model, watch=watch, crew=crew)

    for epoch in range(start, config.epochs):
        # Prepare the method; it computes new prototypes or embeddings if it needs them.
        distributed.broadcast(model)  # each process has its own running statistics
        new_space = NewSpace(
            forward_pass, embed, num_classes, running_means, method.averaging, method.compared
        )
        with matmul_precision(config.precision):
            method.start_epoch(
                epoch,
                config.epochs,
                new_prototypes=new_space.prototypes,
                new_embeddings=new_space.embeddings,
            )
        distributed.broadcast(method)
        new_space.free_embeddings()

        # Shuffle the batches by the seed of this epoch.
        seed = config.seed * 100_003 + epoch
        text_generator = torch.Generator().manual_seed(seed ^ TEXT_SEED)
        batches = Batches(
            collection,
            forward_pass.shown,
            config.batch_size,
            torch.Generator().manual_seed(seed),
            items_per_class=config.items_per_class,
            device=device,
            part=distributed.part(),
            crew=crew,
        )
        steps_per_epoch = -(-len(batches) // config.accumulate)
        rate = learning_rate(epoch, config, steps_per_epoch)
        history: list[dict[str, Tensor]] = []
        shared_model.train()
        method.train()

        with matmul_precision(config.precision), seeded_layers(batches.generator, device):
            for number, batch in enumerate(watch(batches)):
                step = step_of(number, len(batches), epoch=epoch, accumulate=config.accumulate)

                # Forward and backward.
                with nullcontext() if step.is_due else no_sync():  # average gradients once per step
                    inputs = forward_pass.run(shared_model, batch, text_generator)
                    old = {} if old_model is None else embed_old_view(old_model, batch)
                    terms = method(inputs.new, inputs.labels, items=inputs.items, **old)
                    terms = {**inputs.terms, **terms}
                    loss = torch.stack(list(terms.values())).sum() / step.batches
                    scaler.scale(loss).backward()

                # Record the batch.
                if running_means is not None:
                    running_means.add(method.compared(inputs.new.detach()), inputs.labels)
                history.append({name: term.detach() for name, term in terms.items()})

                # Step once enough batches are accumulated.
                if step.is_due:
                    at = learning_rate(step.number / steps_per_epoch, config, steps_per_epoch)
                    set_rate(optimizer, at * warmup(step.number, config))
                    scaler.step(optimizer)
                    scaler.update()
                    optimizer.zero_grad()

        # Report the epoch.
        means = {name: torch.stack([h[name] for h in history]).mean().item() for name in history[0]}
        check_finite(means, parameters, epoch=epoch, learning_rate=config.learning_rate)
        yield Epoch(epoch, rate, means)


class Step(NamedTuple):
    """Optimiser step that a batch belongs to."""

    number: int  # counted from the first epoch
    batches: int  # number of batches in the step
    is_due: bool  # whether this batch is the last of the step


def step_of(batch: int, batches: int, *, epoch: int, accumulate: int) -> Step:
    r"""Returns the optimiser step of batch `b` of `B` in epoch `t`; `k` batches make a step.

    .. math::
        s = t \lceil B / k \rceil + \lfloor b / k \rfloor

    The last step of an epoch consists of the remaining batches.

    Example:
        >>> [tuple(step_of(batch, 4, epoch=1, accumulate=3)) for batch in (0, 2, 3)]
        [(2, 3, False), (2, 3, True), (3, 1, True)]
    """
    index = batch // accumulate
    first, steps = index * accumulate, -(-batches // accumulate)
    size = min(accumulate, batches - first)
    return Step(epoch * steps + index, size, batch == first + size - 1)


def check_finite(
    means: Mapping[str, float], parameters: Sequence[Tensor], *, epoch: int, learning_rate: float
) -> None:
    """Raises if the losses or the weights of an epoch are not finite."""
    are_weights_finite = all(parameter.isfinite().all() for parameter in parameters)
    if not are_weights_finite or not all(math.isfinite(mean) for mean in means.values()):
        raise TrainingDiverged(
            f"The training diverged in epoch {epoch + 1}: the mean losses are {means} and the "
            f"weights are {'finite' if are_weights_finite else 'not finite'}. Lower "
            f"`learning_rate` (now {learning_rate}) and train again."
        )


@contextmanager
def seeded_layers(generator: torch.Generator | None, device: torch.device) -> Iterator[None]:
    """Seeds torch's global generators, as for dropout, by epoch and process; then restores them."""
    assert generator is not None
    rank, world = distributed.part()
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.manual_seed(generator.initial_seed() * world + rank)
        yield


@torch.no_grad()
def embed_old_view(old_model: nn.Module, batch: Batch) -> dict[str, Float[Tensor, "batch dim"]]:
    """Embeds the augmented images of a batch with the frozen old model, in all processes."""
    return {"old": distributed.gather(old_model.eval()(batch.images), len(batch.items))}
