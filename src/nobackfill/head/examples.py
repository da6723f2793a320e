"""Items that a head is fitted to, with the vectors of both models."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float, Int
from torch import Tensor

from nobackfill.core.short import Short

BLOCK = 16_384  # rows per block


@dataclass(frozen=True, eq=False, repr=False)
class Examples(Short):
    """Items with new and old vectors and, if known, classes.

    New vectors stay where they are stored, which may be a memory-mapped file. Only the rows of a
    batch are copied. Old vectors are searched as a whole and stay on the device.
    """

    new: Float[Tensor, "stored new_dim"]  # new vectors of these items, and possibly of others
    old: Float[Tensor, "items old_dim"]  # old vectors of these items
    classes: Int[Tensor, " items"] | None  # classes, numbered from 0 without gaps; None if unknown
    rows: Int[Tensor, " items"] | None = None  # rows of these items in `new`; None for all rows
    # number of each item's modality, such as 0 for images and 1 for texts; None if all items
    # have the same
    modality: Int[Tensor, " items"] | None = None

    def __len__(self) -> int:
        return len(self.old)

    @cached_property
    def number(self) -> int:
        """Number of classes."""
        assert self.classes is not None
        return int(self.classes.max()) + 1

    @property
    def is_on_gpu(self) -> bool:
        """Whether all tensors are on a GPU."""
        parts = (self.new, self.old, self.classes, self.rows, self.modality)
        return all(part is None or part.is_cuda for part in parts)

    def new_of(self, places: Int[Tensor, " places"]) -> Float[Tensor, "places new_dim"]:
        """Returns new vectors in single precision, on the device of the old ones."""
        rows = places if self.rows is None else self.rows[places.to(self.rows.device)]
        return self.new[rows.to(self.new.device)].to(self.old.device, torch.float32)

    def network_inputs(self, places: Int[Tensor, " places"]) -> tuple[Tensor, Tensor | None]:
        """Returns the network's inputs: new vectors and, if there are several, modalities."""
        return self.new_of(places), None if self.modality is None else self.modality[places]

    @property
    def modality_numbers(self) -> Int[Tensor, " items"]:
        """Number of each item's modality; 0 if all items have the same."""
        if self.modality is not None:
            return self.modality
        return torch.zeros(len(self), dtype=torch.int64, device=self.old.device)

    def places(self, modality: int | None = None) -> Iterator[Int[Tensor, " places"]]:
        """Yields the positions of all items, or of those of a modality, block by block."""
        places = torch.arange(len(self), device=self.old.device)
        if modality is not None:
            places = places[self.modality_numbers == modality]
        yield from places.split(BLOCK)

    def blocks(self, modality: int | None = None) -> Iterator[tuple[Tensor, Tensor]]:
        """Yields new and old vectors of all items, or of those of a modality, block by block."""
        for places in self.places(modality):
            yield self.new_of(places), self.old[places].float()


def shuffle_by_class(
    classes: Int[Tensor, " items"], together: int, generator: torch.Generator
) -> Int[Tensor, " items"]:
    """Returns all positions in random order, up to `together` of a class next to each other.

    With many thousand classes, a random batch of a few hundred items rarely contains two items of
    any class.

    Example:
        >>> shuffle_by_class(torch.tensor([0, 1, 0, 1]), 2, torch.Generator().manual_seed(0))
        tensor([0, 2, 1, 3])
    """
    order = torch.randperm(len(classes), generator=generator)
    if together == 1:
        return order
    # Sort the shuffled items by class.
    classes = classes.cpu()[order]
    by_class = classes.argsort(stable=True)
    order, classes = order[by_class], classes[by_class]
    # Cut every class into groups of `together` items.
    begins = classes.diff(prepend=classes[:1] - 1) != 0
    first = begins.nonzero().flatten()[begins.cumsum(0) - 1]  # first row of each item's class
    begins |= (torch.arange(len(classes)) - first) % together == 0
    group = begins.cumsum(0) - 1
    # Shuffle the groups.
    place = torch.randperm(int(group[-1]) + 1, generator=generator)
    return order[place[group].argsort(stable=True)]
