"""RACT: contrast of each new embedding with its own old vector and the hardest of both models.

Zhang et al., Hot-Refresh Model Upgrades with Regression-Alleviating Compatible Training in Image
Retrieval, ICLR 2022. https://arxiv.org/abs/2201.09724
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from nobackfill.methods.base import ClassifyingMethod, Items, Labels, New, Old, Terms
from nobackfill.methods.losses import same_class
from nobackfill.methods.old_space import OldSpace


class RACT(ClassifyingMethod):
    r"""Adds to the new classification loss a contrast with the hardest old and new vectors.

    .. math::
        \mathrm{CE}(W e, y) - \lambda \log \frac{\exp(\hat e_i \hat f_i / \tau)}
        {\exp(\hat e_i \hat f_i / \tau) + \sum_{k \in T_{old}(i)} \exp(\hat e_i \hat f_k / \tau) +
        \sum_{k \in T_{new}(i)} \exp(\hat e_i \hat e_k / \tau)}

    :math:`T(i)` are the items of other classes with the largest cosines, ten by default, in the old
    and in the new vectors of the batch. The only positive is the item's own old vector. Gradients
    go through :math:`e_i` alone.

    Old view:
        The authors run the old model on each batch, so old and new vectors come from the same view
        (`old_view = "same"`). In the code that the paper compares with, nothing is augmented, so
        both views are equal.

    Differences:
        The authors also choose an order of backfilling (by uncertainty), which is not part of the
        training. If a batch has fewer items of other classes than `negatives`, all of them are
        used.

    Relations:
        `CrossSupCon` takes all old vectors of the class as positives, and no new ones as negatives.

    Args:
        negatives: Number of negatives from each model.
    """

    needs = frozenset({"embeddings"})
    paper = "Zhang et al., ICLR"
    year = 2022

    def __init__(
        self,
        old: OldSpace,
        num_classes: int,
        *,
        weight: float = 1.0,
        temperature: float = 0.01,
        negatives: int = 10,
    ):
        super().__init__(old, num_classes, dim=old.dim)
        self.weight, self.temperature, self.negatives = weight, temperature, negatives

    def forward(self, new: New, labels: Labels, *, items: Items = None, old: Old = None) -> Terms:
        """Returns the terms `classification` and `compatibility`."""
        classification = self.classification(new, labels)
        contrast = hardest_contrast(
            new,
            self.old_vectors(new, items, old),
            labels,
            temperature=self.temperature,
            negatives=self.negatives,
        )
        return {"classification": classification, "compatibility": self.weight * contrast}


def hardest_contrast(
    new: Float[Tensor, "batch dim"],
    old: Float[Tensor, "batch dim"],
    labels: Int[Tensor, " batch"],
    *,
    temperature: float,
    negatives: int,
) -> Float[Tensor, ""]:
    """Computes the contrast of `RACT`, without its weight."""
    e, f = F.normalize(new, dim=-1), F.normalize(old, dim=-1)
    same, count = same_class(labels), min(negatives, len(new))
    to_own = (e * f).sum(dim=-1, keepdim=True)
    to_old = (e @ f.T).masked_fill(same, -torch.inf).topk(count).values
    to_new = (e @ e.detach().T).masked_fill(same, -torch.inf).topk(count).values
    logits = torch.cat([to_own, to_old, to_new], dim=1) / temperature
    return F.cross_entropy(logits, torch.zeros_like(labels))
