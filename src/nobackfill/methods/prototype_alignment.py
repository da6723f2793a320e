"""Prototype alignment: each new embedding belongs near its class's old prototype.

The Baseline (Eq. 2) of Zhou et al., Prototype Perturbation for Relaxing Alignment Constraints in
Backward-Compatible Learning, 2025. https://arxiv.org/abs/2503.14824
"""

from typing import ClassVar

from jaxtyping import Float, Int
from torch import Tensor

from nobackfill.errors import OldSpaceError
from nobackfill.losses import prototype_loss
from nobackfill.methods.base import ClassifyingMethod, Terms
from nobackfill.oldspace import Need, OldSpace
from nobackfill.perturb import NeighborPerturbation, OptimizedPerturbation
from nobackfill.perturb.checks import check_prototypes


class PrototypeAlignment(ClassifyingMethod):
    """Adds to the new classification loss a contrast among the old prototypes of all classes.

    Relations:
        `NDPP` and `ODPP` are this method with the own prototype moved.

    Args:
        old: Of which the prototypes are used; one row for each of the new training classes.
        num_classes: How many classes the new model is trained on.
        weight: Share of the contrast.
        temperature: Of the contrast.
    """

    needs: ClassVar[frozenset[Need]] = frozenset({"prototypes"})
    old: Float[Tensor, "classes dim"]
    perturb: NeighborPerturbation | OptimizedPerturbation | None

    def __init__(
        self, old: OldSpace, num_classes: int, *, weight: float = 1.0, temperature: float = 0.07
    ):
        self.check_rows(old, num_classes)
        dim = old.prototypes.shape[1] if old.prototypes is not None else None
        super().__init__(old, num_classes, dim=dim)
        self.register_buffer("old", old.get("prototypes"))
        self.weight, self.temperature = weight, temperature
        self.perturb = None

    @staticmethod
    def check_rows(old: OldSpace, num_classes: int) -> None:
        """Raises where the prototypes are not those of the classes, or have no direction."""
        if old.prototypes is not None and len(old.prototypes) != num_classes:
            raise OldSpaceError(
                f"wanted one old prototype for each of the {num_classes} classes that are trained "
                f"on, but got {len(old.prototypes)}. Embed the *new* training set with the old "
                f"model and take its class means (`nobackfill.class_means`)."
            )
        if old.prototypes is not None and num_classes > 1:
            check_prototypes(old.prototypes)

    @property
    def target(self) -> Float[Tensor, "classes dim"]:
        """Where each class is drawn to: its old prototype, or where that was moved to."""
        return self.old if self.perturb is None else self.perturb.moved

    def forward(
        self,
        new: Float[Tensor, "batch dim"],
        labels: Int[Tensor, " batch"],
        *,
        items: Int[Tensor, " batch"] | None = None,
    ) -> Terms:
        """Returns the terms `classification` and `compatibility`."""
        contrast = prototype_loss(new, labels, self.target, self.old, temperature=self.temperature)
        return {
            "classification": self.classification(new, labels),
            "compatibility": self.weight * contrast,
        }
