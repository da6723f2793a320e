"""Dual-Tuning: old classifier on new features, new classifier on old ones, old prototypes.

Bai et al., Dual-Tuning: Joint Prototype Transfer and Structure Regularization for Compatible
Feature Learning, 2021. https://arxiv.org/abs/2108.02959
"""

from typing import ClassVar

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from nobackfill.core.config.defaults import DEFAULT_TEMPERATURE
from nobackfill.methods.base import ClassifyingMethod, Items, Labels, New, Old, Terms
from nobackfill.methods.checks import check_class_prototypes, check_classifier
from nobackfill.methods.losses import first_dims, known_class_loss, prototype_loss
from nobackfill.methods.old_space import OldSpace


class DualTuning(ClassifyingMethod):
    r"""Adds to the new loss a contrast, and each classifier's loss on the other model's features.

    .. math::
        \mathrm{CE}_{0.1}(W_{new} e, y) + 0.1 \, L_{proto}(e) + 0.2 \bigl(\mathrm{CE}(W_{old} e, y
        \mid y < C_{old}) + \mathrm{CE}(W_{new} f, y)\bigr)

    :math:`L_{proto}` is the contrast among old prototypes of `PrototypeAlignment`; the first cross
    entropy smooths its labels. The last term moves the new classifier only.

    New classes:
        New classes take part in all terms except that of the old classifier.

    Dimensions:
        The old classifier and the prototypes use the first dimensions of a longer new embedding; a
        shorter one is padded with zeros. Old vectors are padded in the same way for the new
        classifier.

    Old view:
        The authors' code for this is not public. Old vectors are the stored ones by default. They
        should be raw outputs of the old model, because the new classifier uses them.

    Reconstruction:
        The published code lacks the file with the losses. Their names, weights and the tool that
        makes the centres are public, and the seed paper calls the centre loss "prototype-based
        contrastive"; the form above is read from these. Every weight is an option.

    Relations:
        The third term is that of `BCT`, and the second that of `PrototypeAlignment`.

    Args:
        prototype_weight: Weight of the contrast.
        classifier_weight: Weight of the two crossed classifiers.
        smoothing: Label smoothing of the new classifier.
        dim: Dimension of the new embedding; that of the old one by default.
    """

    needs = frozenset({"classifier", "embeddings", "prototypes"})
    paper = "Bai et al., arXiv"
    year = 2021
    dimension = "longer"
    old_classes_only = True
    moves_only: ClassVar[dict[str, str]] = {"new_classifier": "classifier"}
    old: Float[Tensor, "classes old_dim"]
    old_classifier: Float[Tensor, "old_classes old_dim"]

    def __init__(
        self,
        old: OldSpace,
        num_classes: int,
        *,
        prototype_weight: float = 0.1,
        classifier_weight: float = 0.2,
        temperature: float = DEFAULT_TEMPERATURE,
        smoothing: float = 0.1,
        dim: int | None = None,
    ):
        super().__init__(old, num_classes, dim=dim or old.dim)
        self.register_buffer("old", check_class_prototypes(old, num_classes))
        self.register_buffer("old_classifier", check_classifier(old, num_classes))
        self.prototype_weight, self.classifier_weight = prototype_weight, classifier_weight
        self.temperature, self.smoothing = temperature, smoothing

    def forward(self, new: New, labels: Labels, *, items: Items = None, old: Old = None) -> Terms:
        """Returns `classification`, `compatibility`, `old_classifier` and `new_classifier`."""
        classification = self.classification(new, labels)
        shared = first_dims(new, self.old.shape[1])
        contrast = prototype_loss(shared, labels, self.old, self.old, temperature=self.temperature)
        new_on_old = known_class_loss(shared @ self.old_classifier.to(new.dtype).T, labels)
        filled = first_dims(self.old_vectors(new, items, old), new.shape[1])
        old_on_new = F.cross_entropy(self.classifier(filled), labels)
        return {
            "classification": classification,
            "compatibility": self.prototype_weight * contrast,
            "old_classifier": self.classifier_weight * new_on_old,
            "new_classifier": self.classifier_weight * old_on_new,
        }
