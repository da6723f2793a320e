"""BCT: the new embedding must also satisfy the old classifier.

Shen et al., Towards Backward-Compatible Representation Learning, CVPR 2020.
https://arxiv.org/abs/2003.11942
"""

from typing import ClassVar

from jaxtyping import Float, Int
from torch import Tensor

from nobackfill.errors import OldSpaceError
from nobackfill.losses import first_dims, known_class_loss
from nobackfill.methods.base import ClassifyingMethod, Terms
from nobackfill.oldspace import Need, OldSpace


class BCT(ClassifyingMethod):
    """Adds to the new classification loss that of the same embedding under the old classifier.

    Items of classes that the old model never saw take no part in the second term. A longer new
    embedding meets the old classifier, and the old gallery, with its first dimensions; a shorter
    one is filled up with zeros.

    Relations:
        `PrototypeAlignment` puts class means in place of the old classifier, so it needs no old
        weights.

    Args:
        old: Of which the classifier is used.
        num_classes: How many classes the new model is trained on.
        weight: Share of the old classifier's loss.
        dim: Of the new embedding; that of the old where it is not given.
    """

    needs: ClassVar[frozenset[Need]] = frozenset({"classifier"})
    old_classifier: Float[Tensor, "old_classes old_dim"]

    def __init__(
        self, old: OldSpace, num_classes: int, *, weight: float = 1.0, dim: int | None = None
    ):
        self.check_classifier(old, num_classes)
        old_dim = old.classifier.shape[1] if old.classifier is not None else None
        super().__init__(old, num_classes, dim=dim or old_dim)
        self.register_buffer("old_classifier", old.get("classifier"))
        self.weight = weight

    @staticmethod
    def check_classifier(old: OldSpace, num_classes: int) -> None:
        """Raises where the old classifier cannot be one of the first classes."""
        if old.classifier is None or num_classes < 2:
            return
        if len(old.classifier) > num_classes or not old.classifier.isfinite().all():
            raise OldSpaceError(
                f"wanted the finite weights of at most {num_classes} old classes, the first of the "
                f"new, but got {len(old.classifier)} rows"
                f"{'' if old.classifier.isfinite().all() else ' with NaN or infinity'}. Number the "
                f"classes again, those of the old model first."
            )

    def forward(
        self,
        new: Float[Tensor, "batch dim"],
        labels: Int[Tensor, " batch"],
        *,
        items: Int[Tensor, " batch"] | None = None,
    ) -> Terms:
        """Returns the terms `classification` and `compatibility`."""
        logits = first_dims(new, self.old_classifier.shape[1]) @ self.old_classifier.T
        return {
            "classification": self.classification(new, labels),
            "compatibility": self.weight * known_class_loss(logits, labels),
        }
