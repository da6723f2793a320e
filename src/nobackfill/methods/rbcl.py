"""RBCL: the ranking of the old vectors by each new embedding, made differentiable.

Pan et al., Dynamic Gradient Reactivation for Backward Compatible Person Re-identification, 2022.
https://arxiv.org/abs/2207.05658
"""

from nobackfill.methods.base import ClassifyingMethod, Items, Labels, New, Old, Terms
from nobackfill.methods.losses import same_class, smooth_average_precision
from nobackfill.methods.old_space import OldSpace


class RBCL(ClassifyingMethod):
    r"""Adds to the new classification loss the average precision on the old vectors of the batch.

    .. math::
        \mathrm{CE}(W e, y) + \lambda \Bigl(1 - \frac{1}{|P_i|} \sum_{p \in P_i}
        \frac{1 + \sum_{j \in P_i, j \ne p} \sigma_\tau(s_{ij} - s_{ip})}
        {1 + \sum_{j \ne p} \sigma_\tau(s_{ij} - s_{ip})}\Bigr), \qquad
        s_{ij} = \cos(e_i, f_j), \; P_i = \{p : y_p = y_i\}

    :math:`\sigma_\tau(x)` is a sigmoid steep enough (:math:`\tau = 0.01`) to count. It is almost
    flat, so the gradient is that of a gentler sigmoid.

    Old view:
        The authors' code is not public; the stored vectors by default.

    Reconstruction:
        From the description alone: the authors' constants, their form of the reactivation and their
        memory of old neighbours are not known. Here the value is that of the steep sigmoid and the
        gradient that of one with `gradient_temperature`; there is no memory.

    Relations:
        `CrossSupCon` is a softmax over the same vectors.

    Args:
        temperature: Temperature of the sigmoid that counts.
        gradient_temperature: Temperature of the sigmoid's gradient.
    """

    needs = frozenset({"embeddings"})
    data_dependent = True
    paper = "Pan et al., arXiv"
    year = 2022

    def __init__(
        self,
        old: OldSpace,
        num_classes: int,
        *,
        weight: float = 1.0,
        temperature: float = 0.01,
        gradient_temperature: float = 0.1,
    ):
        super().__init__(old, num_classes, dim=old.dim)
        self.weight, self.temperature = weight, temperature
        self.gradient_temperature = gradient_temperature

    def forward(self, new: New, labels: Labels, *, items: Items = None, old: Old = None) -> Terms:
        """Returns the terms `classification` and `ranking`."""
        classification = self.classification(new, labels)
        ranking = 1 - smooth_average_precision(
            new,
            self.old_vectors(new, items, old),
            same_class(labels),
            temperature=self.temperature,
            gradient_temperature=self.gradient_temperature,
        )
        return {"classification": classification, "ranking": self.weight * ranking}
