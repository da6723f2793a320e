"""Settings, schedule and progress of a fit."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import ceil, inf
from time import monotonic
from typing import Any

import torch
from torch import Tensor

from nobackfill.core.config import resolve_options
from nobackfill.core.config.defaults import DEFAULT_HEAD_METHOD
from nobackfill.core.suggest import suggest
from nobackfill.errors import ConfigError
from nobackfill.head.examples import Examples, shuffle_by_class
from nobackfill.methods import METHODS

ROUND = 200  # largest number of steps between two measurements on held-out classes
AUTO = "auto"  # chooses among several candidates on held-out classes


@dataclass(frozen=True)
class FitConfig:
    """Settings of a fit with their defaults; `CompatibleHead` documents them.

    The learning rate falls to 0 along half a cosine, over the epochs or the time limit. Training
    stops after `patience` rounds without improvement.
    """

    method: str = DEFAULT_HEAD_METHOD
    options: Mapping[str, Any] | None = None
    hidden: int = 1024
    dropout: float = 0.3
    epochs: int = 30
    batch_size: int = 512
    learning_rate: float = 3e-4
    weight_decay: float = 1e-2
    classification: float = 0.0
    held_out: float = 0.2
    test_share: float = 0.2
    together: int = 1
    extra: int = 0
    old_query: bool | None = None
    patience: int = 6
    seconds: float | None = None
    seed: int = 0


def check_config(config: FitConfig) -> None:
    """Raises ConfigError if the method, its options or a setting cannot be used."""
    check_method(config.method)
    if config.method != AUTO:
        resolve_options(METHODS[config.method], config.options or {}, where="options")
    elif config.options:
        raise ConfigError(f"`{AUTO}` takes no `options`. Choose a method, or drop them.")
    if config.old_query and config.extra:
        raise ConfigError("`old_query` and `extra` exclude each other. Choose one.")
    least = {"batch_size": 1, "together": 1}
    finite = ("epochs", "batch_size", "learning_rate", "weight_decay", "classification", "together")
    for name in (*finite, "hidden", "extra", "seconds"):
        value, smallest = getattr(config, name), least.get(name, 0)
        if value is not None and not (smallest <= value and (value < inf or name not in finite)):
            raise ConfigError(f"`{name}` must be {smallest} or more, but it is {value}.")
    if not 0 <= config.dropout < 1:
        raise ConfigError(f"`dropout` must be from 0 to below 1, but it is {config.dropout}.")
    if not 0 < config.held_out < 1:
        raise ConfigError(f"`held_out` must be between 0 and 1, but it is {config.held_out}.")
    if not 0 <= config.test_share < 1:
        raise ConfigError(f"`test_share` must be from 0 to below 1, but it is {config.test_share}.")


def check_method(name: str) -> None:
    """Raises ConfigError unless a head can be fitted by the method.

    A usable method needs nothing of the old model but its vectors, allows any new dimension and
    has no query map of its own.
    """
    usable = [
        method
        for method, kind in METHODS.items()
        if kind.needs <= {"prototypes", "embeddings"}
        and not kind.same_kind
        and not kind.maps_queries
    ]
    if name == AUTO:
        return
    if name not in METHODS:
        raise ConfigError(f"unknown method `{name}`. {suggest(name, [AUTO, *usable])}")
    if name not in usable:
        raise ConfigError(
            f"A head cannot be fitted by `{name}`: it needs more than old vectors, a fixed "
            f"dimension, or a query map of its own. Choose one of {', '.join([AUTO, *usable])}."
        )


@dataclass(frozen=True, eq=False)
class Round:
    """Steps between two measurements on the held-out classes."""

    epoch: int  # number of its epoch
    begins_epoch: bool  # whether it is the first round of its epoch
    batches: Sequence[Tensor]  # positions of the items of each step


def rounds(examples: Examples, config: FitConfig) -> Iterator[Round]:
    """Yields the rounds of all epochs; an epoch has even rounds of at most `ROUND` steps."""
    assert examples.classes is not None
    generator = torch.Generator().manual_seed(config.seed)
    for epoch in range(config.epochs):
        order = shuffle_by_class(examples.classes, config.together, generator)
        batches = order.split(config.batch_size)
        parts = ceil(len(batches) / ROUND)
        ends = [len(batches) * part // parts for part in range(parts + 1)]
        for first, last in pairwise(ends):
            yield Round(epoch, first == 0, batches[first:last])


class Schedule:
    """Progress of a fit by steps or by time, whichever is further."""

    def __init__(self, config: FitConfig, items: int, begun: float):
        self.total = config.epochs * ceil(items / config.batch_size)
        self.seconds, self.begun = config.seconds, begun
        self.steps = 0

    @property
    def done(self) -> float:
        """Completed share."""
        return min(1.0, max(self.steps / max(self.total, 1), self._time_share()))

    @property
    def is_late(self) -> bool:
        """Whether the time limit was reached before the last step."""
        return self._time_share() >= 1 and self.steps < self.total

    def _time_share(self) -> float:
        if self.seconds is None:
            return 0.0
        return (monotonic() - self.begun) / self.seconds if self.seconds else 1.0


@dataclass
class Progress:
    """Record of a fit."""

    # new/old mAP of each closed form on the held-out classes; NaN without such classes
    closed: dict[str, float] = field(default_factory=dict)
    start: str = ""  # name of the closed form that training started from
    # New/old mAP on the held-out classes after each round. A round is an epoch, or a part of a
    # long epoch
    history: list[float] = field(default_factory=list)
    best: int = 0  # number of the round that was kept; 0 for the closed form
    planned: int = 0  # number of steps without a limit of time or patience
    seen: int = 0  # number of steps that were made
    late: bool = False  # whether the time limit ended training
    done: float = 0.0  # completed share of the training, by steps or by time
    # new/new mAP on the held-out classes of each way to store re-embedded items; see
    # `compare_stored`
    stored: dict[str, float] = field(default_factory=dict)
    method: str = ""  # name of the method that trained it
    tried: dict[str, float] = field(default_factory=dict)  # mAP of each method's trial, by `auto`
    blend: float = 1.0  # share of the trained head in the blend with its closed form
    value: float | None = None  # new/old mAP of the head that was kept
    old_old: float | None = None  # mAP of the old model on the held-out classes
    # difference of mAP between the head alone and the old model on these classes, with its
    # interval; the ends are unknown with fewer than 8 classes
    gain: dict[str, float | int | None] = field(default_factory=dict)
    # mAP of each weight of the old vector in a query of both models
    both: dict[str, float] = field(default_factory=dict)
    old_weight: float | None = (
        None  # weight of the old vector; None for queries of the new model alone
    )

    @property
    def kept(self) -> float:
        """New/old mAP on the held-out classes of the head that was kept; NaN without classes."""
        if self.value is not None:  # unknown to heads of earlier versions
            return self.value
        return self.history[self.best - 1] if self.best else self.closed[self.start]

    @property
    def made_by(self) -> str:
        """Name of the method, or of the closed form if training did not improve it."""
        return self.method if self.kept > self.closed[self.start] else self.start

    @property
    def new_alone(self) -> str:
        """How queries of new vectors alone compare with old queries on the held-out classes.

        "better" or "worse" beyond chance, "as good" if the difference may be chance, or "unknown".
        """
        low, high = self.gain.get("low"), self.gain.get("high")
        if low is None or high is None:
            return "unknown"
        return "better" if low > 0 else "worse" if high < 0 else "as good"
