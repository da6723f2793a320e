"""NDPP-old: align with old prototypes that their old neighbours have pushed apart, once.

Zhou et al., Prototype Perturbation for Relaxing Alignment Constraints in Backward-Compatible
Learning, 2025, Eqs. 4-6. https://arxiv.org/abs/2503.14824
"""

from nobackfill.methods.prototype_alignment import PrototypeAlignment
from nobackfill.oldspace import OldSpace
from nobackfill.perturb import NeighborPerturbation


class NDPPOld(PrototypeAlignment):
    """`PrototypeAlignment` towards prototypes that their old neighbours have pushed apart.

    Relations:
        `NDPP` goes on from here and lets the new model's prototypes push too.

    Args:
        old: Of which the prototypes are used.
        num_classes: How many classes the new model is trained on.
        weight: Share of the contrast.
        temperature: Of the contrast.
        neighbors: How many classes push.
        old_strength: How far they push.
        normalize: Whether prototypes are made unit first.
    """

    def __init__(
        self,
        old: OldSpace,
        num_classes: int,
        *,
        weight: float = 1.0,
        temperature: float = 0.07,
        neighbors: int = 100,
        old_strength: float = 0.01,
        normalize: bool = True,
    ):
        super().__init__(old, num_classes, weight=weight, temperature=temperature)
        self.perturb = NeighborPerturbation(
            self.old, neighbors=neighbors, old_strength=old_strength, normalize=normalize
        )
