"""Division of items into batches."""

import torch
from jaxtyping import Int
from torch import Tensor

from nobackfill.errors import DataError


def in_order(num_items: int, batch_size: int) -> list[Int[Tensor, " batch"]]:
    """Returns batches of consecutive items, whose sizes differ by at most one.

    No batch has a single item, unless there is only one or `batch_size` is less than three.

    Example:
        >>> in_order(5, 4)
        [tensor([0, 1, 2]), tensor([3, 4])]
    """
    return list(torch.arange(num_items).tensor_split(-(-num_items // batch_size)))


def shuffled(
    num_items: int, batch_size: int, generator: torch.Generator
) -> list[Int[Tensor, " batch"]]:
    """Returns batches of the same sizes as `in_order`, with every item once, in random order."""
    order = torch.randperm(num_items, generator=generator)
    return list(order.tensor_split(-(-num_items // batch_size)))


def by_class(
    labels: Int[Tensor, " items"],
    batch_size: int,
    items_per_class: int,
    generator: torch.Generator,
) -> list[Int[Tensor, " batch"]]:
    """Returns batches with a fixed number of items per class, as usual in re-identification.

    Classes come in random order, none twice in a batch, each about equally often. Classes with
    fewer items than `items_per_class` repeat some. The number of batches is the number of full
    batches of items.
    """
    classes, count = labels.unique(return_counts=True)
    classes_per_batch = batch_size // items_per_class
    if len(classes) < classes_per_batch:
        raise DataError(
            f"A batch of {batch_size} items, {items_per_class} of each class, requires "
            f"{classes_per_batch} classes, but there are {len(classes)}. Lower `batch_size`, or "
            f"raise `items_per_class` in [train]."
        )
    by_label = labels.argsort(stable=True)
    first = count.cumsum(0) - count
    remaining = torch.empty(0, dtype=torch.int64)
    batches = []
    for _ in range(max(len(labels) // batch_size, 1)):
        if len(remaining) < classes_per_batch:  # the few that remain wait for another time
            remaining = torch.randperm(len(classes), generator=generator)
        drawn, remaining = remaining[:classes_per_batch], remaining[classes_per_batch:]
        # Draw items of each class, each as seldom twice as possible.
        batch = []
        for c in drawn:
            rounds = -(-items_per_class // int(count[c]))
            picks = [torch.randperm(int(count[c]), generator=generator) for _ in range(rounds)]
            batch.append(by_label[first[c] + torch.cat(picks)[:items_per_class]])
        batches.append(torch.cat(batch))
    return batches
