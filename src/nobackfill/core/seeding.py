"""Random seeds for code that draws from torch's global generator."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

import torch

_LOCK = Lock()


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seeds torch's CPU generator within the block, and restores its state afterwards.

    Only one thread at a time is in such a block, so that two trainings do not mix their seeds.

    Example:
        >>> with seeded(3):
        ...     first = torch.nn.Linear(2, 1).weight
        >>> with seeded(3):
        ...     second = torch.nn.Linear(2, 1).weight
        >>> torch.equal(first, second)
        True
    """
    with _LOCK, torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield
