"""Prototype mimic: near the class's old prototype, and near the item's own old vector."""

from typing import Any

from nobackfill.methods.base import Items, Labels, New, Old, Terms
from nobackfill.methods.losses import mimic_loss
from nobackfill.methods.old_space import OldSpace
from nobackfill.methods.options import passes_on
from nobackfill.methods.prototype_alignment import PrototypeAlignment


class PrototypeMimic(PrototypeAlignment):
    r"""`PrototypeAlignment` that also keeps each new embedding close to its item's old one.

    .. math::
        \mathrm{CE}(W e, y) + \lambda L_{proto} + \mu \, (1 - \cos(e, f))

    Relations:
        `Mimic` is the last term alone.

    Args:
        mimic_weight: Weight of the mimicry.
    """

    needs = frozenset({"prototypes", "embeddings"})
    paper = "ours"
    year = None

    @passes_on(PrototypeAlignment, before="mimic_weight")
    def __init__(
        self, old: OldSpace, num_classes: int, *, mimic_weight: float = 1.0, **alignment: Any
    ):
        super().__init__(old, num_classes, **alignment)
        self.mimic_weight = mimic_weight

    def forward(self, new: New, labels: Labels, *, items: Items = None, old: Old = None) -> Terms:
        """Returns the terms `classification`, `compatibility` and `mimicry`."""
        terms = super().forward(new, labels)
        mimicry = mimic_loss(new, self.old_vectors(new, items, old))
        return {**terms, "mimicry": self.mimic_weight * mimicry}
