"""Cross SupCon: supervised contrast of new embeddings with the old vectors of the batch."""

from typing import Any

from nobackfill.core.config.defaults import DEFAULT_TEMPERATURE
from nobackfill.methods.base import ClassifyingMethod, Items, Labels, New, Old, Terms
from nobackfill.methods.item_index import ItemClasses
from nobackfill.methods.losses import same_class, supervised_contrast
from nobackfill.methods.old_space import OldSpace


class CrossSupCon(ClassifyingMethod):
    r"""Adds to the new classification loss a contrast among the old vectors of the batch.

    .. math::
        \mathrm{CE}(W e, y) - \frac{\lambda}{|P_i|} \sum_{p \in P_i}
        \log \frac{\exp(\cos(e_i, f_p) / \tau)}{\sum_j \exp(\cos(e_i, f_j) / \tau)}, \qquad
        P_i = \{p : y_p = y_i\}

    A prototype is only the centre of a class; its old vectors also contain its spread.

    Relations:
        `PrototypeAlignment` contrasts with the class means. In `RACT` the item's own
        old vector is the only positive.

    Args:
        partners: Number of other stored items of its class that are drawn at random for each item
            of a batch; a batch of many classes has few items of each.
    """

    needs = frozenset({"embeddings"})

    def __init__(
        self,
        old: OldSpace,
        num_classes: int,
        *,
        weight: float = 1.0,
        temperature: float = DEFAULT_TEMPERATURE,
        partners: int = 0,
    ):
        super().__init__(old, num_classes, dim=old.dim)
        self.weight, self.temperature, self.partners = weight, temperature, partners
        self.classes = ItemClasses(old.labels, self.embeddings, num_classes)

    def start_epoch(self, epoch: int, epochs: int, **unused: Any) -> None:
        """Builds the index of partners."""
        if self.partners:
            self.classes.sort()

    def forward(self, new: New, labels: Labels, *, items: Items = None, old: Old = None) -> Terms:
        """Returns the terms `classification` and `compatibility`."""
        classification = self.classification(new, labels)
        stored = self.old_vectors(new, items, old)
        contrast = supervised_contrast(
            new,
            self.classes.with_partners(stored, items, labels, self.embeddings, self.partners),
            same_class(labels).repeat(1, 1 + self.partners),
            temperature=self.temperature,
        )
        return {"classification": classification, "compatibility": self.weight * contrast}
