"""Prototype mimic: near the class's old prototype, and near the item's own old vector."""

from typing import ClassVar

from nobackfill.core.config.defaults import DEFAULT_TEMPERATURE
from nobackfill.methods.base import Items, Labels, New, OldVectors, Terms
from nobackfill.methods.losses import mimic_loss
from nobackfill.methods.old_space import Need, OldSpace
from nobackfill.methods.prototype_alignment import PrototypeAlignment


class PrototypeMimic(PrototypeAlignment):
    r"""`PrototypeAlignment`, and each new embedding looks like the old one of the same item.

    .. math::
        \mathrm{CE}(W e, y) + \lambda L_{proto} + \mu \, (1 - \cos(e, f))

    New classes:
        Take part like all others.

    Old view:
        Ours; the stored vectors by default.

    Relations:
        `Mimic` is the last term alone.

    Args:
        old: Of which the prototypes and the embeddings are used.
        num_classes: How many classes the new model is trained on.
        weight: Share of the contrast among prototypes.
        temperature: Of that contrast.
        mimic_weight: Share of the mimicry.
    """

    needs: ClassVar[frozenset[Need]] = frozenset({"prototypes", "embeddings"})
    paper: ClassVar[str] = "ours"
    year: ClassVar[int | None] = None

    def __init__(
        self,
        old: OldSpace,
        num_classes: int,
        *,
        weight: float = 1.0,
        temperature: float = DEFAULT_TEMPERATURE,
        mimic_weight: float = 1.0,
    ):
        super().__init__(old, num_classes, weight=weight, temperature=temperature)
        self.mimic_weight = mimic_weight

    def forward(
        self, new: New, labels: Labels, *, items: Items = None, old: OldVectors = None
    ) -> Terms:
        """Returns the terms `classification`, `compatibility` and `mimicry`."""
        terms = super().forward(new, labels)
        mimicry = mimic_loss(new, self.old_vectors(new, items, old))
        return {**terms, "mimicry": self.mimic_weight * mimicry}
