"""Which items go into which batch."""

import torch
from jaxtyping import Int
from torch import Tensor

from nobackfill.errors import DataError


def in_order(num_items: int, batch_size: int) -> list[Int[Tensor, " batch"]]:
    """Batches of neighbours, whose sizes differ by at most one.

    No batch is left with one item, unless that is all or two are too many.

    Example:
        >>> in_order(5, 4)
        [tensor([0, 1, 2]), tensor([3, 4])]
    """
    return list(torch.arange(num_items).tensor_split(-(-num_items // batch_size)))


def shuffled(
    num_items: int, batch_size: int, generator: torch.Generator
) -> list[Int[Tensor, " batch"]]:
    """Batches of `in_order`'s sizes, every item once, in random order."""
    order = torch.randperm(num_items, generator=generator)
    return list(order.tensor_split(-(-num_items // batch_size)))


def by_class(
    labels: Int[Tensor, " items"],
    batch_size: int,
    items_per_class: int,
    generator: torch.Generator,
) -> list[Int[Tensor, " batch"]]:
    """Batches of so many items of each of some classes, as re-identification trains on.

    Classes come in random order, none twice in a batch, each about equally often; of a class with
    fewer items than are wanted some come twice. As many batches as there are whole batches of
    items.

    Args:
        labels: The class of each item.
        batch_size: Of which `batch_size // items_per_class` classes make one.
        items_per_class: How many of each.
        generator: Of everything random.
    """
    classes, count = labels.unique(return_counts=True)
    classes_per_batch = batch_size // items_per_class
    if len(classes) < classes_per_batch:
        raise DataError(
            f"wanted {classes_per_batch} classes in a batch ({batch_size} items, {items_per_class} "
            f"of each), but there are {len(classes)}. Lower `batch_size`, or raise "
            f"`items_per_class` in [train]."
        )
    by_label = labels.argsort(stable=True)
    first = count.cumsum(0) - count
    left = torch.empty(0, dtype=torch.int64)
    batches = []
    for _ in range(max(len(labels) // batch_size, 1)):
        if len(left) < classes_per_batch:  # the few that are left wait for another time
            left = torch.randperm(len(classes), generator=generator)
        chosen, left = left[:classes_per_batch], left[classes_per_batch:]
        batches.append(
            torch.cat(
                [_some(by_label, first[c], count[c], items_per_class, generator) for c in chosen]
            )
        )
    return batches


def _some(
    items: Int[Tensor, " items"],
    first: Int[Tensor, ""],
    count: Int[Tensor, ""],
    wanted: int,
    generator: torch.Generator,
) -> Int[Tensor, " wanted"]:
    """So many of the `count` items from `first` on, each as seldom twice as can be."""
    turns = -(-wanted // int(count))
    picks = [torch.randperm(int(count), generator=generator) for _ in range(turns)]
    return items[first + torch.cat(picks)[:wanted]]
