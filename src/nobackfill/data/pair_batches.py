"""The order in which training reads pairs."""

from collections import deque
from collections.abc import Hashable, Sequence

import torch


def shuffled_batches(
    keys: Sequence[Sequence[Hashable]], batch_size: int, *, seed: int, epoch: int = 0
) -> list[list[int]]:
    """Returns the rows of each batch of an epoch, in random order.

    Pairs that share a key are in different batches: a text that answers one query of a batch is
    then no wrong answer to another. Such a pair is moved to the next batch that it fits into, so
    the last batches may be smaller. Every pair is in exactly one batch, unless a batch of one pair
    is left, which has no wrong answers to learn from.

    Args:
        keys: Keys of each pair, such as the ids of its texts.
        batch_size: Number of pairs of a batch.
        seed: Random seed.
        epoch: Number of the epoch; each has its own order.

    Example:
        >>> shuffled_batches([["a"], ["a"], ["b"], ["c"]], 2, seed=0)
        [[0, 3], [1, 2]]
    """
    order = torch.randperm(len(keys), generator=torch.Generator().manual_seed(2**20 * seed + epoch))
    waiting = deque(order.tolist())
    batches = []
    while waiting:
        batch: list[int] = []
        used: set[Hashable] = set()
        passed: list[int] = []
        while waiting and len(batch) < batch_size:
            row = waiting.popleft()
            if used.isdisjoint(keys[row]):
                batch.append(row)
                used.update(keys[row])
            else:
                passed.append(row)
        waiting.extendleft(reversed(passed))
        if len(batch) > 1:
            batches.append(batch)
    return batches
