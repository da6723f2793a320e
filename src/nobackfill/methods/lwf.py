"""LwF: the old classifier must give the new embedding the outputs that it gave the old one.

Li and Hoiem, Learning without Forgetting, ECCV 2016. https://arxiv.org/abs/1606.09282
"""

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from nobackfill.methods.base import ClassifyingMethod, Items, Labels, New, Old, Terms
from nobackfill.methods.checks import check_classifier
from nobackfill.methods.losses import first_dims
from nobackfill.methods.old_space import OldSpace


class LwF(ClassifyingMethod):
    r"""Adds to the new classification loss the distance to the old model's outputs.

    .. math::
        \mathrm{CE}(W_{new} e, y) - \lambda \sum_c \tilde y_c \log
        \mathrm{softmax}(W_{old} e / T)_c, \qquad \tilde y = \mathrm{softmax}(W_{old} f / T)

    New classes:
        New classes take part like all others, because the old model has an output for every image.

    Dimensions:
        The old classifier and the old gallery use the first dimensions of a longer new embedding.
        A shorter one is padded with zeros here, but could not search the gallery, so the trainer
        refuses it.

    Old view:
        The authors record the old outputs once, before training. Old vectors must be raw: for
        vectors of unit length, the outputs of the classifier are almost uniform.

    Differences:
        The authors continue to train the old head and start the new network from the old one. Here
        the old head is frozen, as in the comparisons of compatible learning, because the gallery
        is fixed. Others use T = 1 or 0.01.

    Relations:
        `BCT` trains the old classifier's output towards the labels, not the old outputs.

    Args:
        temperature: Temperature of both outputs, :math:`T`.
        dim: Dimension of the new embedding; that of the old one by default.
    """

    needs = frozenset({"classifier", "embeddings"})
    paper = "Li and Hoiem, ECCV"
    year = 2016
    dimension = "longer"
    old_classifier: Float[Tensor, "old_classes old_dim"]

    def __init__(
        self,
        old: OldSpace,
        num_classes: int,
        *,
        weight: float = 1.0,
        temperature: float = 2.0,
        dim: int | None = None,
    ):
        super().__init__(old, num_classes, dim=dim or old.dim)
        self.register_buffer("old_classifier", check_classifier(old, num_classes))
        self.weight, self.temperature = weight, temperature

    def forward(self, new: New, labels: Labels, *, items: Items = None, old: Old = None) -> Terms:
        """Returns the terms `classification` and `compatibility`."""
        old_classifier = self.old_classifier.to(new.dtype)
        new_output = first_dims(new, old_classifier.shape[1]) @ old_classifier.T
        old_output = self.old_vectors(new, items, old) @ old_classifier.T
        distance = F.cross_entropy(
            new_output / self.temperature, (old_output / self.temperature).softmax(dim=-1)
        )
        return {
            "classification": self.classification(new, labels),
            "compatibility": self.weight * distance,
        }
