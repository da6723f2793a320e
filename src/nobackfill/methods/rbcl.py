"""RBCL: the ranking of the old vectors by each new embedding, made differentiable.

Pan et al., Dynamic Gradient Reactivation for Backward Compatible Person Re-identification, 2022.
https://arxiv.org/abs/2207.05658
"""

import torch
import torch.nn.functional as F
from jaxtyping import Int
from torch import Tensor

from nobackfill.methods.base import ClassifyingMethod, Items, Labels, New, Old, Terms
from nobackfill.methods.checks import require_items
from nobackfill.methods.item_index import ItemClasses
from nobackfill.methods.losses import smooth_average_precision
from nobackfill.methods.old_space import OldSpace
from nobackfill.ops.nearest import nearest


class RBCL(ClassifyingMethod):
    r"""Adds to the new classification loss the average precision on the old vectors of the batch.

    .. math::
        \mathrm{CE}(W e, y) + \lambda \Bigl(1 - \frac{1}{|P_i|} \sum_{p \in P_i}
        \frac{1 + \sum_{j \in P_i, j \ne p} \sigma_\tau(s_{ij} - s_{ip})}
        {1 + \sum_{j \ne p} \sigma_\tau(s_{ij} - s_{ip})}\Bigr), \qquad
        s_{ij} = \cos(e_i, f_j), \; P_i = \{p : y_p = y_i\}

    :math:`\sigma_\tau(x)` is a sigmoid steep enough (:math:`\tau = 0.01`) to count. It is almost
    flat, so the gradient is that of a gentler sigmoid. With `neighbors`, the embeddings also rank
    the nearest old vectors of each item of the batch, from the whole training set.

    Old view:
        The authors' code is not public. Old vectors are the stored ones by default.

    Reconstruction:
        This method is implemented from the description alone. The authors' constants, the form of
        their gradient reactivation, and their memory of old neighbours are not known. Here the
        value of the loss is that of the steep sigmoid, and the gradient that of a sigmoid with
        `gradient_temperature`. The memory consists of all stored old vectors. How many neighbours
        the authors take from it is not known, so it is not used by default (`neighbors = 0`).

    Relations:
        `CrossSupCon` is a softmax over the same vectors.

    Args:
        temperature: Temperature of the sigmoid that counts.
        gradient_temperature: Temperature of the sigmoid's gradient.
        neighbors: Number of nearest old vectors of each item that the batch ranks too.
    """

    needs = frozenset({"embeddings"})
    data_dependent = True
    paper = "Pan et al., arXiv"
    year = 2022
    near: Int[Tensor, "items neighbors"] | None

    def __init__(
        self,
        old: OldSpace,
        num_classes: int,
        *,
        weight: float = 1.0,
        temperature: float = 0.01,
        gradient_temperature: float = 0.1,
        neighbors: int = 0,
    ):
        super().__init__(old, num_classes, dim=old.dim)
        self.weight, self.temperature = weight, temperature
        self.gradient_temperature = gradient_temperature
        self.neighbors, self.near = neighbors, None
        if neighbors:
            self.classes = ItemClasses(old.labels, self.embeddings, num_classes)

    def forward(self, new: New, labels: Labels, *, items: Items = None, old: Old = None) -> Terms:
        """Returns the terms `classification` and `ranking`."""
        classification = self.classification(new, labels)
        keys, classes = self.old_vectors(new, items, old), labels
        if self.neighbors:
            context = self.context(items, labels)
            keys = torch.cat([keys, self.embeddings[context].to(keys.dtype)])
            classes = torch.cat([classes, self.classes.known[context]])
        ranking = 1 - smooth_average_precision(
            new,
            keys,
            labels[:, None] == classes[None, :],
            temperature=self.temperature,
            gradient_temperature=self.gradient_temperature,
        )
        return {"classification": classification, "ranking": self.weight * ranking}

    def context(self, items: Items, labels: Labels) -> Int[Tensor, " context"]:
        """Returns the neighbours of a batch that are not in it, once each, of known class."""
        items = require_items(items)
        self.classes.learn(items, labels)
        if self.near is None:
            unit = F.normalize(self.embeddings, dim=-1)
            self.near, _ = nearest(unit, unit, self.neighbors, exclude_self=True)
        context: Tensor = torch.unique(self.near[items])
        return context[~torch.isin(context, items) & (self.classes.known[context] >= 0)]
