"""The class of each training item, for methods that look at whole classes of old vectors."""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from nobackfill.errors import OldSpaceError
from nobackfill.given import check_given
from nobackfill.prototypes import check_labels


class ItemClasses(nn.Module):
    """The class of each training item: told at once, or learned from the batches.

    Attributes:
        told: Whether all are known from the start.
        known: One class per item, -1 where it is not known yet.

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

    def see(self, items: Int[Tensor, " batch"] | None, labels: Int[Tensor, " batch"]) -> None:
        """Remembers the classes of a batch."""
        if not self.told:
            self.known[check_given(items)] = labels
