"""Randomness is an argument: a seed for what can only draw from torch's global generator."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

import torch

_LOCK = Lock()


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Lets layers draw their first weights from a seed, and leaves the CPU's as it was.

    One at a time, so that two trainings on two threads do not draw from each other's seed.

    Example:
        >>> with seeded(3):
        ...     one = torch.nn.Linear(2, 1).weight
        >>> with seeded(3):
        ...     other = torch.nn.Linear(2, 1).weight
        >>> torch.equal(one, other)
        True
    """
    with _LOCK, torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield
