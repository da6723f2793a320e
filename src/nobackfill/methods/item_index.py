"""Classes of the training items, for methods that use whole classes of old vectors."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from nobackfill.errors import OldSpaceError
from nobackfill.methods.checks import require_items
from nobackfill.methods.prototypes import check_labels


class ItemClasses(nn.Module):
    """The class of each training item, from `OldSpace.labels` or learned from the batches.

    Attributes:
        complete: Whether all classes are known from the start.
        known: Class of each item, -1 while it is not known.
        index: Items of each class; None before `sort`.

    Args:
        labels: Class of each item, or None.
        embeddings: Old vectors of the items.
        num_classes: Number of classes.
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
                f"`labels` must contain a label for each of the {len(embeddings)} rows of "
                f"`embeddings`, but got {len(labels)}. Take both from the same items."
            )
        if labels is not None:
            check_labels(labels, num_classes)
        self.complete = labels is not None
        known = torch.full((len(embeddings),), -1) if labels is None else labels
        self.register_buffer("known", known.to(embeddings.device, torch.int64))
        self.num_classes = num_classes
        self.index: ClassIndex | None = None

    def learn(self, items: Int[Tensor, " batch"] | None, labels: Int[Tensor, " batch"]) -> None:
        """Learns the classes of a batch, unless all are known."""
        if not self.complete:
            self.known[require_items(items)] = labels

    def sort(self) -> None:
        """Builds the index of the classes known so far."""
        if self.index is None or not self.complete:
            self.index = ClassIndex.of(self.known, self.num_classes)

    def others(self, items: Int[Tensor, " batch"]) -> Int[Tensor, " batch"]:
        """Draws another item of its class for each item; itself if no other is known."""
        if self.index is None:
            return items
        classes = self.known[items]
        count, first = self.index.count[classes], self.index.first[classes]
        chance = torch.rand(len(items), device=items.device)
        step = 1 + (chance * (count - 1)).long()
        place = first + (self.index.place[items] - first + step) % count.clamp(min=1)
        place = place.clamp(max=len(self.index.order) - 1)  # that of an empty class may be beyond
        others = self.index.order[place]
        return torch.where((count > 1) & (classes >= 0), others, items)

    def members(self, embeddings: Float[Tensor, "items dim"]) -> Float[Tensor, "classes dim"]:
        """Draws the old vector of one item of each class; zeros if no item of a class is known."""
        if self.index is None or not len(embeddings):
            return embeddings.new_zeros(self.num_classes, embeddings.shape[1])
        count, first = self.index.count, self.index.first
        chance = torch.rand(self.num_classes, device=embeddings.device)
        place = first + (chance * count).long()
        drawn = embeddings[self.index.order[place.clamp(max=len(embeddings) - 1)]]
        return drawn * (count > 0)[:, None]

    def with_partners(
        self,
        stored: Float[Tensor, "batch dim"],
        items: Int[Tensor, " batch"] | None,
        labels: Int[Tensor, " batch"],
        embeddings: Float[Tensor, "items dim"],
        partners: int,
    ) -> Float[Tensor, "keys dim"]:
        """Appends to the old vectors of a batch those of `partners` random others for each item.

        Learns the classes of the batch.
        """
        if partners == 0:
            return stored
        items = require_items(items)
        self.learn(items, labels)
        others = [embeddings[self.others(items)].to(stored.dtype) for _ in range(partners)]
        return torch.cat([stored, *others])


@dataclass(frozen=True, eq=False)
class ClassIndex:
    """Items in the order of their classes.

    Attributes:
        order: Items; those without a class come first.
        place: Position of each item in `order`.
        first: Position of the first item of each class.
        count: Number of items of each class.
    """

    order: Int[Tensor, " items"]
    place: Int[Tensor, " items"]
    first: Int[Tensor, " classes"]
    count: Int[Tensor, " classes"]

    @classmethod
    def of(cls, known: Int[Tensor, " items"], num_classes: int) -> "ClassIndex":
        """Builds the index from the class of each item, -1 for none."""
        order = known.argsort(stable=True)
        count = (known + 1).bincount(minlength=num_classes + 1)
        first = count.cumsum(0) - count
        return cls(order, order.argsort(), first[1:], count[1:])
