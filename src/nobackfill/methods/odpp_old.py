"""ODPP-old: align with old prototypes moved apart by gradient steps, once.

Zhou et al., Prototype Perturbation for Relaxing Alignment Constraints in Backward-Compatible
Learning, 2025, Eqs. 9-10. https://arxiv.org/abs/2503.14824
"""

from nobackfill.methods.old_space import OldSpace
from nobackfill.methods.perturbation import OptimizedPerturbation
from nobackfill.methods.prototype_alignment import PrototypeAlignment


class ODPPOld(PrototypeAlignment):
    r"""`PrototypeAlignment` towards prototypes moved until no two old ones are too close.

    .. math::
        \mathrm{CE}(W e, y) - \lambda \log \frac{\exp(\cos(e, \tilde p_y) / \tau)}
        {\exp(\cos(e, \tilde p_y) / \tau) + \sum_{c \ne y} \exp(\cos(e, p_c) / \tau)}, \qquad
        \tilde p = p + r

    .. math::
        r = \arg\min_r \; \sum_{c \ne c'} \max(0, \tilde p_c^\top \tilde p_{c'} - \theta_1)

    The sum is over ordered pairs; :math:`r` starts at zero and takes `steps` steps, once. Only the
    prototype that an embedding is drawn to is moved; those it is kept away from stay where they
    were.

    New classes:
        Take part like all others: their prototypes are the old model's means of images it was
        never trained on, and are kept from the others too.

    Old view:
        None: prototypes are made once, of images as for a test.

    Relations:
        `ODPP` goes on from here and keeps them from the new model's prototypes too.

    Args:
        old: Of which the prototypes are used.
        num_classes: How many classes the new model is trained on.
        weight: Share of the contrast.
        temperature: Of the contrast.
        old_threshold: Old prototypes may come as near as this, :math:`\theta_1`.
        steps: Full gradients, or epochs of sampled pairs.
        learning_rate: Of the perturbation.
        optimizer: "adam" or "sgd".
        hinge: On the "inner" product or the "cosine".
        pairs: "all", "sampled" or "inbatch".
        pairs_per_epoch: For sampled and in-batch pairs; the paper takes the number of images.
        batch_size: Of sampled pairs, or of classes in a batch.
        normalize: Whether prototypes are made unit first.
        precision: Of comparing pairs that are too many to be listed: "float32", or for GPUs "tf32".
    """

    def __init__(
        self,
        old: OldSpace,
        num_classes: int,
        *,
        weight: float = 1.0,
        temperature: float = 0.07,
        old_threshold: float = 0.6,
        steps: int = 50,
        learning_rate: float = 1e-3,
        optimizer: str = "adam",
        hinge: str = "inner",
        pairs: str = "all",
        pairs_per_epoch: int | None = None,
        batch_size: int = 1024,
        normalize: bool = True,
        precision: str = "float32",
    ):
        super().__init__(old, num_classes, weight=weight, temperature=temperature)
        self.perturb = OptimizedPerturbation(
            self.old,
            old_threshold=old_threshold,
            steps=steps,
            learning_rate=learning_rate,
            optimizer=optimizer,
            hinge=hinge,
            pairs=pairs,
            pairs_per_epoch=pairs_per_epoch,
            batch_size=batch_size,
            normalize=normalize,
            precision=precision,
        )
