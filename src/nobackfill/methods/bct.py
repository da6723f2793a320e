"""BCT: the new embedding must also satisfy the old classifier.

Shen et al., Towards Backward-Compatible Representation Learning, CVPR 2020.
https://arxiv.org/abs/2003.11942
"""

from jaxtyping import Float
from torch import Tensor

from nobackfill.methods.base import ClassifyingMethod, Items, Labels, New, Old, Terms
from nobackfill.methods.checks import check_classifier
from nobackfill.methods.losses import first_dims, known_class_loss
from nobackfill.methods.old_space import OldSpace


class BCT(ClassifyingMethod):
    r"""Adds to the new classification loss that of the old classifier on the same embedding.

    .. math::
        \mathrm{CE}(W_{new} e, y) + \lambda \, \mathrm{CE}(W_{old} e, y \mid y < C_{old})

    New classes:
        New classes take no part in the second term.

    Dimensions:
        The old classifier and the old gallery use the first dimensions of a longer new embedding.
        A shorter one is padded with zeros here, but could not search the gallery, so the trainer
        refuses it.

    Old view:
        The loss uses the old classifier, not the old vectors, so there is no old view.

    Relations:
        `PrototypeAlignment` uses class means instead of the old classifier, so it needs no old
        weights. `LwF` uses the old model's outputs instead of the labels.

    Args:
        dim: Dimension of the new embedding; that of the old one by default.
    """

    needs = frozenset({"classifier"})
    paper = "Shen et al., CVPR"
    year = 2020
    dimension = "longer"
    old_classes_only = True
    old_classifier: Float[Tensor, "old_classes old_dim"]

    def __init__(
        self, old: OldSpace, num_classes: int, *, weight: float = 1.0, dim: int | None = None
    ):
        super().__init__(old, num_classes, dim=dim or old.dim)
        self.register_buffer("old_classifier", check_classifier(old, num_classes))
        self.weight = weight

    def forward(self, new: New, labels: Labels, *, items: Items = None, old: Old = None) -> Terms:
        """Returns the terms `classification` and `compatibility`."""
        old_classifier = self.old_classifier.to(new.dtype)
        logits = first_dims(new, old_classifier.shape[1]) @ old_classifier.T
        return {
            "classification": self.classification(new, labels),
            "compatibility": self.weight * known_class_loss(logits, labels),
        }
