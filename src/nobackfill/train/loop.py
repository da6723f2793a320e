"""The training loop, from the first line to the last. No method's name occurs in it."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from nobackfill.config import TrainConfig
from nobackfill.data.collection import Batches, Collection
from nobackfill.embed import Watch, embed
from nobackfill.errors import TrainingDiverged
from nobackfill.methods import Method
from nobackfill.prototypes import class_means


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
    old_model: nn.Module | None = None,
    optimizer: torch.optim.Optimizer | None = None,
    start: int = 0,
    watch: Watch = iter,
) -> Iterator[Epoch]:
    """Trains `model` and `method` in place and yields after each epoch.

    Progress bars, checkpoints, early stopping and logging are the caller's. All randomness comes
    from `config.seed` and the epoch's number, so a loop that starts at `start`, with the weights
    and the optimiser of that moment, goes on exactly as one that was never stopped.

    Args:
        model: Images in, embeddings out.
        method: Embeddings in, terms of the loss out.
        collection: Where the images are.
        rows: Which of them to train on.
        config: How long and how fast.
        old_model: Embeds the same views for the method, where it shall not use stored vectors.
        optimizer: Of the parameters of both; made by `make_optimizer` where it is not given.
        start: The first epoch to train.
        watch: Wraps the batches of each epoch, as a progress bar does.
    """
    device = next(model.parameters()).device
    num_classes = int(collection.labels[rows].max()) + 1
    optimizer = optimizer or make_optimizer(model, method, config)

    for epoch in range(start, config.epochs):

        @cache
        def new_embeddings() -> Float[Tensor, "items dim"]:
            return embed(model, collection, rows)

        def new_prototypes() -> Float[Tensor, "classes dim"]:
            return class_means(new_embeddings(), collection.labels[rows].to(device), num_classes)

        method.start_epoch(
            epoch, config.epochs, new_prototypes=new_prototypes, new_embeddings=new_embeddings
        )
        new_embeddings.cache_clear()  # as large as the training set
        rate = learning_rate(epoch, config)
        for group in optimizer.param_groups:
            group["lr"] = rate

        model.train()
        method.train()
        history: list[dict[str, Tensor]] = []
        generator = torch.Generator().manual_seed(config.seed * 100_003 + epoch)
        for batch in watch(Batches(collection, rows, config.batch_size, generator)):
            images = batch.images.to(device)
            labels, items = batch.labels.to(device), batch.items.to(device)
            same_view = {} if old_model is None else {"old": seen_by(old_model, images)}
            terms = method(model(images), labels, items=items, **same_view)
            optimizer.zero_grad()
            torch.stack(list(terms.values())).sum().backward()
            optimizer.step()
            history.append({name: term.detach() for name, term in terms.items()})

        means = {name: torch.stack([h[name] for h in history]).mean().item() for name in history[0]}
        sound = all(parameter.isfinite().all() for parameter in model.parameters())
        if not sound or not all(math.isfinite(mean) for mean in means.values()):
            raise TrainingDiverged(
                f"wanted finite weights and losses, but in epoch {epoch + 1} the losses are "
                f"{means} and the weights {'finite' if sound else 'are not'}. Lower "
                f"`learning_rate` (now {config.learning_rate}) and train again."
            )
        yield Epoch(epoch, rate, means)


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


def make_optimizer(
    model: nn.Module, method: nn.Module, config: TrainConfig
) -> torch.optim.Optimizer:
    """The optimiser of the parameters of model and method."""
    parameters = [*model.parameters(), *method.parameters()]
    if config.optimizer == "adam":
        return torch.optim.Adam(
            parameters, lr=config.learning_rate, weight_decay=config.weight_decay
        )
    return torch.optim.SGD(
        parameters,
        lr=config.learning_rate,
        momentum=config.momentum,
        weight_decay=config.weight_decay,
    )
