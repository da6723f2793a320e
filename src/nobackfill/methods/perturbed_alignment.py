"""Alignment with prototypes that a perturbation moves: what NDPP and ODPP share."""

from typing import Any

from nobackfill.core.config.defaults import DEFAULT_TEMPERATURE
from nobackfill.methods.base import Embeddings, Prototypes
from nobackfill.methods.old_space import OldSpace
from nobackfill.methods.perturbation import NeighborPerturbation, OptimizedPerturbation
from nobackfill.methods.prototype_alignment import PrototypeAlignment
from nobackfill.methods.prototypes import averaging


class PerturbedAlignment(PrototypeAlignment):
    """`PrototypeAlignment` towards prototypes that move before training and at each epoch.

    Args:
        warmup_epochs: Number of epochs without the new prototypes.
    """

    perturb: NeighborPerturbation | OptimizedPerturbation

    def __init__(
        self,
        old: OldSpace,
        num_classes: int,
        *,
        weight: float = 1.0,
        temperature: float = DEFAULT_TEMPERATURE,
        cosine: bool = False,
        unit_items: bool = True,
        warmup_epochs: int = 0,
        **perturbation: Any,
    ):
        super().__init__(
            old,
            num_classes,
            weight=weight,
            temperature=temperature,
            cosine=cosine,
            unit_items=unit_items,
        )
        self.averaging = averaging({"unit_items": unit_items, **perturbation})
        self.warmup_epochs = warmup_epochs
        self.perturb = self.make_perturbation(old, **perturbation)

    def make_perturbation(
        self, old: OldSpace, **options: Any
    ) -> NeighborPerturbation | OptimizedPerturbation:
        """Moves the old prototypes before training."""
        raise NotImplementedError

    def start_epoch(
        self, epoch: int, epochs: int, *, new_prototypes: Prototypes, new_embeddings: Embeddings
    ) -> None:
        """Moves the prototypes away from those of the new model."""
        if epoch >= self.warmup_epochs:
            self.perturb.update(new_prototypes())
