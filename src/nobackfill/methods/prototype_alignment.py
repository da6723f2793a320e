"""Prototype alignment: pulls each new embedding to the old prototype of its class.

The Baseline (Eq. 2) of Zhou et al., Prototype Perturbation for Relaxing Alignment Constraints in
Backward-Compatible Learning, 2025. https://arxiv.org/abs/2503.14824
"""

from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from nobackfill.core.config.defaults import DEFAULT_TEMPERATURE
from nobackfill.methods.base import ClassifyingMethod, Items, Labels, New, Old, Terms
from nobackfill.methods.checks import check_class_prototypes
from nobackfill.methods.losses import prototype_loss
from nobackfill.methods.old_space import OldSpace
from nobackfill.methods.perturbation import NeighborPerturbation, OptimizedPerturbation


class PrototypeAlignment(ClassifyingMethod):
    r"""Adds to the new classification loss a contrast among the old prototypes of all classes.

    .. math::
        \mathrm{CE}(W e, y) - \lambda \log \frac{\exp(\cos(e, p_y) / \tau)}
        {\sum_c \exp(\cos(e, p_c) / \tau)}

    New classes:
        New classes take part like all others: their prototypes are means of the old model's
        vectors, although it was never trained on their images.

    Old view:
        Prototypes are computed once, from images without augmentation.

    Relations:
        `NDPP` and `ODPP` are this method with moved prototypes.
    """

    needs = frozenset({"prototypes"})
    paper = "Zhou et al., arXiv"
    year: ClassVar[int | None] = 2025
    old: Float[Tensor, "classes dim"]
    perturb: NeighborPerturbation | OptimizedPerturbation | None

    def __init__(
        self,
        old: OldSpace,
        num_classes: int,
        *,
        weight: float = 1.0,
        temperature: float = DEFAULT_TEMPERATURE,
        cosine: bool = False,
        unit_items: bool = True,
    ):
        super().__init__(old, num_classes, dim=old.dim)
        self.register_buffer("old", check_class_prototypes(old, num_classes))
        self.weight, self.temperature, self.cosine = weight, temperature, cosine
        self.perturb, self.averaging = None, {"unit_items": unit_items}

    @property
    def target(self) -> Float[Tensor, "classes dim"]:
        """The prototype that attracts each class: the old one, or that as moved by `perturb`."""
        return self.old if self.perturb is None else self.perturb.moved

    def forward(self, new: New, labels: Labels, *, items: Items = None, old: Old = None) -> Terms:
        """Returns the terms `classification` and `compatibility`."""
        classification = self.classification(new, labels)
        contrast = prototype_loss(
            self.compared(new), labels, self.target, self.old, temperature=self.temperature
        )
        return {"classification": classification, "compatibility": self.weight * contrast}
