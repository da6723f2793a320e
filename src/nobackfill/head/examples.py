"""What a head learns from: items with the vectors of both models, read when they are wanted."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float, Int
from torch import Tensor

BLOCK = 16_384  # rows that are read in one go


@dataclass(frozen=True, eq=False)
class Examples:
    """Items with both vectors and, where known, classes.

    New vectors stay where they are stored, maybe mapped from a file that no memory could hold: only
    those of a batch are ever copied. Old vectors, which are searched as a whole, are at hand.

    Attributes:
        new: New vectors of these items, and maybe of others.
        old: Their old vectors.
        classes: From 0 on without gaps; None where nothing is known.
        rows: Theirs in `new`; all where it is None.
        modality: The number of each item's, such as 0 for images and 1 for texts; None where all
            are of one.
    """

    new: Float[Tensor, "stored new_dim"]
    old: Float[Tensor, "items old_dim"]
    classes: Int[Tensor, " items"] | None
    rows: Int[Tensor, " items"] | None = None
    modality: Int[Tensor, " items"] | None = None

    def __len__(self) -> int:
        return len(self.old)

    @cached_property
    def number(self) -> int:
        """How many classes there are."""
        assert self.classes is not None
        return int(self.classes.max()) + 1

    @property
    def is_on_gpu(self) -> bool:
        """Whether all of it is."""
        parts = (self.new, self.old, self.classes, self.rows, self.modality)
        return all(part is None or part.is_cuda for part in parts)

    def new_of(self, places: Int[Tensor, " some"]) -> Float[Tensor, "some new_dim"]:
        """New vectors of some items in single precision, beside the old ones."""
        rows = places if self.rows is None else self.rows[places.to(self.rows.device)]
        return self.new[rows.to(self.new.device)].to(self.old.device, torch.float32)

    def given(self, places: Int[Tensor, " some"]) -> tuple[Tensor, ...]:
        """What a network is given of some items: new vectors and, of several, their modalities."""
        new = self.new_of(places)
        return (new,) if self.modality is None else (new, self.modality[places])

    def places(self, modality: int | None = None) -> Iterator[Int[Tensor, " some"]]:
        """The places of all items, or of those of a modality, some at a time, in their order."""
        if modality is None:
            places = torch.arange(len(self), device=self.old.device)
        else:
            assert self.modality is not None
            places = (self.modality == modality).nonzero().flatten()
        yield from places.split(BLOCK)

    def blocks(self, modality: int | None = None) -> Iterator[tuple[Tensor, Tensor]]:
        """New and old vectors of all items, or of those of a modality, some at a time."""
        for places in self.places(modality):
            yield self.new_of(places), self.old[places].float()


def drawn(
    classes: Int[Tensor, " items"], together: int, generator: torch.Generator
) -> Int[Tensor, " items"]:
    """All items once in an order by chance, up to `together` of a class next to each other.

    A batch of some hundred items of many thousand classes would hardly hold two of any class.

    Args:
        classes: Of the items.
        together: How many of a class stay together; 1 for pure chance.
        generator: What chance is.

    Example:
        >>> drawn(torch.tensor([0, 1, 0, 1]), 2, torch.Generator().manual_seed(0))
        tensor([0, 2, 1, 3])
    """
    order = torch.randperm(len(classes), generator=generator)
    if together == 1:
        return order
    classes = classes.cpu()[order]
    by_class = classes.argsort(stable=True)
    order, classes = order[by_class], classes[by_class]
    begins = classes.diff(prepend=classes[:1] - 1) != 0
    first = begins.nonzero().flatten()[begins.cumsum(0) - 1]  # where the class of each begins
    begins |= (torch.arange(len(classes)) - first) % together == 0
    group = begins.cumsum(0) - 1
    place = torch.randperm(int(group[-1]) + 1, generator=generator)
    return order[place[group].argsort(stable=True)]
