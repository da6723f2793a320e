"""Fits a head: closed forms first, then a method, stopped where held-out classes say so."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from math import cos, inf, isnan, pi
from time import monotonic
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from nobackfill.adapters import Affine, procrustes, ridge
from nobackfill.config import resolve_options, suggest
from nobackfill.errors import ConfigError
from nobackfill.head.network import HeadNetwork
from nobackfill.methods import METHODS, Method
from nobackfill.methods.base import ClassifyingMethod
from nobackfill.metrics import retrieval
from nobackfill.oldspace import OldSpace
from nobackfill.prototypes import class_means
from nobackfill.randomness import seeded

STRENGTHS = (1e-4, 1e-3, 1e-2, 1e-1)
MIDDLING = "ridge 0.001"  # where no held-out classes say which is best
QUERIES = 2000  # of the held-out classes that are asked after each epoch


@dataclass(frozen=True)
class FitConfig:
    """How long and how fast a head is fitted.

    Attributes:
        epochs: At most.
        batch_size: How many items make a step.
        learning_rate: Of AdamW; falls to 0 along half a cosine.
        weight_decay: Likewise.
        classification: Weight of the method's classification term.
        patience: Epochs without a better one after which to stop.
        seconds: After which no epoch is begun; None for no limit.
        seed: Of all that is random.
    """

    epochs: int = 30
    batch_size: int = 512
    learning_rate: float = 1e-3
    weight_decay: float = 1e-2
    classification: float = 0.0
    patience: int = 6
    seconds: float | None = None
    seed: int = 0


@dataclass(frozen=True, eq=False)
class Examples:
    """Items with both vectors and, where known, classes.

    Attributes:
        new: Their new vectors.
        old: Their old vectors.
        classes: From 0 on without gaps; None where nothing is known.
    """

    new: Float[Tensor, "items new_dim"]
    old: Float[Tensor, "items old_dim"]
    classes: Int[Tensor, " items"] | None


@dataclass
class Progress:
    """How a fit went.

    Attributes:
        closed: Of each closed form new/old mAP on the held-out classes; NaN where there are none.
        start: The name of the closed form that was begun with.
        history: new/old mAP on the held-out classes after each epoch.
        best: The epoch that was kept; 0 for the closed form.
    """

    closed: dict[str, float] = field(default_factory=dict)
    start: str = ""
    history: list[float] = field(default_factory=list)
    best: int = 0


def check_method(name: str) -> None:
    """Refuses a method that needs more of the old model than its vectors, or fixes a dimension."""
    usable = [
        known
        for known, kind in METHODS.items()
        if kind.needs <= {"prototypes", "embeddings"}
        and not kind.same_kind
        and not kind.maps_queries
    ]
    if name not in METHODS:
        raise ConfigError(f"unknown method `{name}`. {suggest(name, usable)}")
    if name not in usable:
        raise ConfigError(
            f"wanted a method that needs nothing but old vectors, but `{name}` needs more, or "
            f"another dimension. Choose one of {', '.join(usable)}."
        )


def check_config(config: FitConfig) -> None:
    """Refuses numbers that make no sense."""
    wanted = {
        "epochs": config.epochs >= 0,
        "batch_size": config.batch_size >= 1,
        "learning_rate": 0 <= config.learning_rate < inf,
        "weight_decay": 0 <= config.weight_decay < inf,
        "classification": 0 <= config.classification < inf,
        "seconds": config.seconds is None or config.seconds >= 0,
    }
    for name, sensible in wanted.items():
        if not sensible:
            least = 1 if name == "batch_size" else 0
            raise ConfigError(
                f"wanted `{name}` of {least} or more, but got {getattr(config, name)}."
            )


def closed_forms(examples: Examples) -> Iterator[tuple[str, Affine]]:
    """All maps in closed form, by name."""
    yield "procrustes", procrustes(examples.new, examples.old)
    for strength in STRENGTHS:
        yield f"ridge {strength:g}", ridge(examples.new, examples.old, strength=strength)


def choose_closed_form(
    network: HeadNetwork, examples: Examples, held_out: Examples | None
) -> Progress:
    """Lets the network begin with the closed form that is best on the held-out classes.

    Without any, with ridge regression of middling strength.
    """
    progress, found = Progress(), dict(closed_forms(examples))
    for name, affine in found.items():
        network.start_from(affine)
        progress.closed[name] = float("nan") if held_out is None else asked(network, held_out)
    progress.start = MIDDLING
    if held_out is not None:
        progress.start = max(progress.closed, key=lambda name: progress.closed[name])
    network.start_from(found[progress.start])
    return progress


def fit_network(
    network: HeadNetwork,
    examples: Examples,
    held_out: Examples,
    *,
    method: str,
    options: Mapping[str, Any],
    config: FitConfig,
    progress: Progress,
    watch: Callable[[Progress], None] = lambda progress: None,
) -> int:
    """Trains the network in place; it ends as it was where the held-out classes liked it best.

    Args:
        network: Begun in closed form.
        examples: What to fit on, with classes.
        held_out: Of other classes.
        method: A name of `METHODS`.
        options: Of the method.
        config: How long and how fast.
        progress: Is brought up to date after each epoch.
        watch: Is shown that.

    Returns:
        How many steps were made; 0 where the method had nothing to learn by.
    """
    trained = make_method(method, options, examples, config)
    parameters = [*network.parameters(), *trained.parameters()]
    optimizer = torch.optim.AdamW(
        parameters, lr=config.learning_rate, weight_decay=config.weight_decay
    )
    generator = torch.Generator().manual_seed(config.seed)
    best, kept = progress.closed[progress.start], weights_of(network)
    begun, steps, waited = monotonic(), 0, 0
    for epoch in range(config.epochs):
        if config.seconds is not None and monotonic() - begun > config.seconds:
            break
        with seeded(config.seed + epoch):  # not around `watch`, which may draw numbers, too
            made = train_epoch(network, trained, optimizer, examples, epoch, config, generator)
        value = asked(network, held_out)
        progress.history.append(value)
        steps, waited = steps + made, waited + (made > 0)
        if value > best:
            best, progress.best, waited = value, epoch + 1, 0
            kept = weights_of(network)
        watch(progress)
        if isnan(value) or waited >= config.patience:
            break
    network.load_state_dict(kept)
    network.eval()
    return steps


def train_epoch(
    network: HeadNetwork,
    method: Method,
    optimizer: torch.optim.Optimizer,
    examples: Examples,
    epoch: int,
    config: FitConfig,
    generator: torch.Generator,
) -> int:
    """Every item once, in an order that the generator draws; returns how many steps were made."""
    start_epoch(method, network, examples, epoch, config.epochs)
    network.train()
    order = torch.randperm(len(examples.new), generator=generator)
    batches, steps = order.split(config.batch_size), 0
    for number, rows in enumerate(batches):
        done = (epoch + number / len(batches)) / config.epochs
        for group in optimizer.param_groups:
            group["lr"] = config.learning_rate * (1 + cos(pi * done)) / 2
        steps += step(network, method, optimizer, examples, rows.to(examples.new.device), config)
    network.eval()
    return steps


def weights_of(network: nn.Module) -> dict[str, Tensor]:
    """A copy."""
    return {name: value.clone() for name, value in network.state_dict().items()}


def make_method(
    name: str, options: Mapping[str, Any], examples: Examples, config: FitConfig
) -> Method:
    """A method that knows the old vectors of the examples, and nothing else of the old model."""
    assert examples.classes is not None
    number = int(examples.classes.max()) + 1
    prototypes = None
    if "prototypes" in METHODS[name].needs:
        prototypes = class_means(examples.old, examples.classes, number)
    old = OldSpace(prototypes=prototypes, embeddings=examples.old, labels=examples.classes)
    checked = resolve_options(METHODS[name], options, where="options")
    with seeded(config.seed + 1):
        method = METHODS[name](old, number, **checked)
    if isinstance(method, ClassifyingMethod):
        method.classifies = config.classification > 0
    return method.to(examples.new.device)


def start_epoch(
    method: Method, network: HeadNetwork, examples: Examples, epoch: int, epochs: int
) -> None:
    """Tells the method that an epoch begins."""
    classes = examples.classes
    assert classes is not None

    def embeddings() -> Float[Tensor, "items old_dim"]:
        return mapped(network, examples.new)

    method.start_epoch(
        epoch,
        epochs,
        new_prototypes=lambda: class_means(embeddings(), classes, method.num_classes),
        new_embeddings=embeddings,
    )


def step(
    network: HeadNetwork,
    method: Method,
    optimizer: torch.optim.Optimizer,
    examples: Examples,
    rows: Int[Tensor, " batch"],
    config: FitConfig,
) -> bool:
    """One step on some rows; none where the method has nothing to learn by, as some at first."""
    assert examples.classes is not None
    terms = method(network(examples.new[rows]), examples.classes[rows], items=rows)
    loss = torch.stack(
        [
            value * (config.classification if name == "classification" else 1.0)
            for name, value in terms.items()
        ]
    ).sum()
    if not loss.requires_grad:
        return False
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return True


@torch.no_grad()
def mapped(
    network: nn.Module, new: Float[Tensor, "rows new_dim"], *, block: int = 65_536
) -> Float[Tensor, "rows old_dim"]:
    """What the network makes of vectors, of unit length, some rows at a time; without dropout."""
    was_training = network.training
    network.eval()
    parts = [F.normalize(network(part), dim=1) for part in new.split(block)]
    network.train(was_training)
    return torch.cat(parts)


def asked(network: nn.Module, held_out: Examples) -> float:
    """New/old mAP of the network on the held-out classes; NaN where training has diverged."""
    query = mapped(network, held_out.new)
    return cross_map(query, held_out) if query.isfinite().all() else float("nan")


def cross_map(query: Float[Tensor, "items old_dim"], held_out: Examples) -> float:
    """The mAP of mapped new vectors on the old ones, each item asking for the others."""
    assert held_out.classes is not None
    rows = torch.arange(len(query))
    if len(query) > QUERIES:
        rows = torch.arange(QUERIES) * len(query) // QUERIES
    found = retrieval(
        query[rows.to(query.device)],
        held_out.old,
        held_out.classes[rows.to(query.device)].cpu(),
        held_out.classes.cpu(),
        ignored=[[row] for row in rows.tolist()],
    )
    return found.mean_average_precision
