"""ODPP: align with old prototypes moved apart by gradient steps, anew each epoch.

Zhou et al., Prototype Perturbation for Relaxing Alignment Constraints in Backward-Compatible
Learning, 2025, Eqs. 9-11 and Algorithm 2. https://arxiv.org/abs/2503.14824
"""

from nobackfill.methods.base import Embeddings, Prototypes
from nobackfill.methods.prototype_alignment import PrototypeAlignment
from nobackfill.oldspace import OldSpace
from nobackfill.perturb import OptimizedPerturbation


class ODPP(PrototypeAlignment):
    """`PrototypeAlignment` towards prototypes kept from each other and from the new ones.

    Relations:
        `ODPPOld` stops after the first stage, which knows only the old prototypes.

    Args:
        old: Of which the prototypes are used.
        num_classes: How many classes the new model is trained on.
        weight: Share of the contrast.
        temperature: Of the contrast.
        old_threshold: Old prototypes may come as near as this.
        new_threshold: A moved prototype may come as near as this to another class's new one.
        new_weight: Share of the new prototypes in the perturbation.
        steps: Full gradients, or epochs of sampled pairs, each epoch.
        learning_rate: Of the perturbation.
        optimizer: "adam" or "sgd".
        hinge: On the "inner" product or the "cosine".
        pairs: "all", "sampled" or "inbatch".
        pairs_per_epoch: For sampled and in-batch pairs; the paper takes the number of images.
        batch_size: Of sampled pairs, or of classes in a batch.
        keep_state: Whether the optimiser's moments live on over the epochs.
        normalize: Whether prototypes are made unit first.
        warmup_epochs: How many epochs the new prototypes are left out.
    """

    perturb: OptimizedPerturbation

    def __init__(
        self,
        old: OldSpace,
        num_classes: int,
        *,
        weight: float = 1.0,
        temperature: float = 0.07,
        old_threshold: float = 0.6,
        new_threshold: float = 0.6,
        new_weight: float = 1.0,
        steps: int = 50,
        learning_rate: float = 1e-3,
        optimizer: str = "adam",
        hinge: str = "inner",
        pairs: str = "all",
        pairs_per_epoch: int | None = None,
        batch_size: int = 1024,
        keep_state: bool = True,
        normalize: bool = True,
        warmup_epochs: int = 0,
    ):
        super().__init__(old, num_classes, weight=weight, temperature=temperature)
        self.warmup_epochs = warmup_epochs
        self.perturb = OptimizedPerturbation(
            self.old,
            old_threshold=old_threshold,
            new_threshold=new_threshold,
            new_weight=new_weight,
            steps=steps,
            learning_rate=learning_rate,
            optimizer=optimizer,
            hinge=hinge,
            pairs=pairs,
            pairs_per_epoch=pairs_per_epoch,
            batch_size=batch_size,
            keep_state=keep_state,
            normalize=normalize,
        )

    def start_epoch(
        self, epoch: int, epochs: int, *, new_prototypes: Prototypes, new_embeddings: Embeddings
    ) -> None:
        """Goes on moving the prototypes, from the new ones too."""
        if epoch >= self.warmup_epochs:
            self.perturb.update(new_prototypes())
