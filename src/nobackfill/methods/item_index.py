"""The class of each training item, for methods that look at whole classes of old vectors."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from nobackfill.errors import OldSpaceError
from nobackfill.methods.checks import require_items
from nobackfill.methods.prototypes import check_labels


class ItemClasses(nn.Module):
    """The class of each training item: told at once, or learned from the batches.

    Attributes:
        told: Whether all are known from the start.
        known: One class per item, -1 where it is not known yet.
        index: Where the items of each class are; None before `sort`.

    Args:
        labels: Where they are known.
        embeddings: Of the items.
        num_classes: How many classes there are.
    """

    known: Int[Tensor, " items"]

    def __init__(
        self,
        labels: Int[Tensor, " labels"] | None,
        embeddings: Float[Tensor, "items dim"],
        num_classes: int,
    ):
        super().__init__()
        if labels is not None and len(labels) != len(embeddings):
            raise OldSpaceError(
                f"wanted one label for each of the {len(embeddings)} rows of `embeddings`, but got "
                f"{len(labels)}. Take both from the same items."
            )
        if labels is not None:
            check_labels(labels, num_classes)
        self.told = labels is not None
        known = torch.full((len(embeddings),), -1) if labels is None else labels
        self.register_buffer("known", known.to(embeddings.device, torch.int64))
        self.num_classes = num_classes
        self.index: ClassIndex | None = None

    def see(self, items: Int[Tensor, " batch"] | None, labels: Int[Tensor, " batch"]) -> None:
        """Remembers the classes of a batch."""
        if not self.told:
            self.known[require_items(items)] = labels

    def sort(self) -> None:
        """Looks up where the items of each class are, as far as classes are known by now."""
        if self.index is None or not self.told:
            self.index = ClassIndex.of(self.known, self.num_classes)

    def others(self, items: Int[Tensor, " batch"]) -> Int[Tensor, " batch"]:
        """For each item another of its class, by chance; itself where no other is known."""
        if self.index is None:
            return items
        classes = self.known[items]
        count, first = self.index.count[classes], self.index.first[classes]
        chance = torch.rand(len(items), device=items.device)
        step = 1 + (chance * (count - 1)).long()
        place = first + (self.index.place[items] - first + step) % count.clamp(min=1)
        others = self.index.order[place.clamp(max=len(self.index.order) - 1)]  # none, if unknown
        return torch.where((count > 1) & (classes >= 0), others, items)

    def with_partners(
        self,
        stored: Float[Tensor, "batch dim"],
        items: Int[Tensor, " batch"] | None,
        labels: Int[Tensor, " batch"],
        embeddings: Float[Tensor, "items dim"],
        partners: int,
    ) -> Float[Tensor, "keys dim"]:
        """The old vectors of a batch, and below them those of other items of the same classes.

        Remembers the classes of the batch.

        Args:
            stored: The old vectors of the batch.
            items: Its rows in `embeddings`.
            labels: Their classes.
            embeddings: All old vectors.
            partners: How many others for each item: so many times the batch comes below.
        """
        if partners == 0:
            return stored
        items = require_items(items)
        self.see(items, labels)
        others = [embeddings[self.others(items)].to(stored.dtype) for _ in range(partners)]
        return torch.cat([stored, *others])


@dataclass(frozen=True)
class ClassIndex:
    """The items in the order of their classes.

    Attributes:
        order: The items; those without a class come first.
        place: Of each item its place there.
        first: Of each class the place of its first item.
        count: Of each class how many there are.
    """

    order: Int[Tensor, " items"]
    place: Int[Tensor, " items"]
    first: Int[Tensor, " classes"]
    count: Int[Tensor, " classes"]

    @classmethod
    def of(cls, known: Int[Tensor, " items"], num_classes: int) -> "ClassIndex":
        """From the class of each item, -1 for none.

        Example:
            >>> ClassIndex.of(torch.tensor([1, 0, -1, 1]), 2).order
            tensor([2, 1, 0, 3])
        """
        order = known.argsort(stable=True)
        count = (known + 1).bincount(minlength=num_classes + 1)
        first = count.cumsum(0) - count
        return cls(order, order.argsort(), first[1:], count[1:])
