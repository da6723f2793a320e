"""The steps of a fit: in rounds, after each of which held-out classes are asked; and its time."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil
from time import monotonic

import torch
from torch import Tensor

from nobackfill.head.examples import Examples, drawn
from nobackfill.head.schedule_settings import FitConfig

ROUND = 200  # steps at most until held-out classes are asked again


@dataclass(frozen=True)
class Round:
    """What is learned from before the held-out classes are asked again.

    Attributes:
        epoch: Which one it is in.
        begins_epoch: Whether it is its first.
        batches: Places of the items of each step.
    """

    epoch: int
    begins_epoch: bool
    batches: Sequence[Tensor]


def rounds(examples: Examples, config: FitConfig) -> Iterator[Round]:
    """Every epoch, each item once in it; long ones in even parts of at most `ROUND` steps."""
    assert examples.classes is not None
    generator = torch.Generator().manual_seed(config.seed)
    for epoch in range(config.epochs):
        batches = drawn(examples.classes, config.together, generator).split(config.batch_size)
        parts = ceil(len(batches) / ROUND)
        ends = [len(batches) * part // parts for part in range(parts + 1)]
        for first, last in pairwise(ends):
            yield Round(epoch, first == 0, batches[first:last])


class Schedule:
    """How far a fit is, by its steps or by its time, whichever is further.

    Args:
        config: How long it may go on.
        items: How many there are.
        begun: When it began, by `time.monotonic`.
    """

    def __init__(self, config: FitConfig, items: int, begun: float):
        self.total = config.epochs * ceil(items / config.batch_size)
        self.seconds, self.begun = config.seconds, begun
        self.steps = 0

    @property
    def done(self) -> float:
        """The share that is behind."""
        return min(1.0, max(self.steps / max(self.total, 1), self._time_behind()))

    @property
    def is_late(self) -> bool:
        """Whether time is up and steps are left."""
        return self._time_behind() >= 1 and self.steps < self.total

    def _time_behind(self) -> float:
        if self.seconds is None:
            return 0.0
        return (monotonic() - self.begun) / self.seconds if self.seconds else 1.0

    @property
    def is_over(self) -> bool:
        """Whether no step is left."""
        return self.done >= 1
