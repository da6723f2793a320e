"""CoReS: every model version learns the same fixed classifier, so no old model is needed.

Biondi et al., CoReS: Compatible Representations via Stationarity, TPAMI 2023.
https://arxiv.org/abs/2111.07632
"""

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from nobackfill.errors import ConfigError
from nobackfill.methods.base import Items, Labels, Method, New, Old, Terms
from nobackfill.methods.checks import check_dim
from nobackfill.methods.old_space import OldSpace
from nobackfill.methods.prototypes import check_labels


class CoReS(Method):
    r"""Classification by the corners of a fixed simplex, the same in every version of the model.

    .. math::
        \mathrm{CE}(T e, y), \qquad T \in R^{K \times (K - 1)}, \quad
        \cos(t_a, t_b) = -\frac{1}{K - 1}

    A model of :math:`d` dimensions has :math:`K = d + 1` corners, one for each present and future
    class; those of future classes are negatives.

    New classes:
        New classes have a corner from the first version on.

    Old view:
        Nothing of the old model is used. New queries can search its gallery if the *old* model was
        trained by this method too, with the same dimension and numbering of classes. In
        comparisons, this method therefore has its own old model.

    Differences:
        The authors have no BatchNorm between the model and the corners. Set `head = "no_norm"` in
        [model], as the recipes do. Their number of corners on Market-1501 is not known; our recipes
        set `embedding_dim` so that there is one corner for each class of the last step.

    Args:
        dim: Dimension of the embedding, at least the final number of classes minus one; taken from
            the first batch by default.
    """

    paper = "Biondi et al., TPAMI"
    year = 2023
    at_inference = "one dimension per class"
    same_kind = True

    def __init__(self, old: OldSpace, num_classes: int, *, dim: int | None = None):
        super().__init__(old, num_classes)
        self.dim = dim
        if dim is not None:
            self.check_corners(dim)

    def check_corners(self, dim: int) -> None:
        """Raises if there are fewer corners than classes."""
        if dim + 1 < self.num_classes:
            raise ConfigError(
                f"CoReS needs a corner for each of the {self.num_classes} classes, but an "
                f"embedding of {dim} dimensions has {dim + 1}. Set embedding_dim to "
                f"{self.num_classes - 1} or, for future classes, more."
            )

    def forward(self, new: New, labels: Labels, *, items: Items = None, old: Old = None) -> Terms:
        """Returns the term `classification`."""
        if labels.device.type == "cpu":  # on a GPU, the check would force a synchronisation
            check_labels(labels, self.num_classes)
        if self.dim is None:
            self.check_corners(new.shape[1])
        check_dim(new, self.dim or new.shape[1])
        return {"classification": F.cross_entropy(simplex_logits(new), labels)}


def simplex_logits(vectors: Float[Tensor, "rows dim"]) -> Float[Tensor, "rows corners"]:
    r"""Inner products with the unit corners of a regular simplex around 0, without storing them.

    The corners are the rows :math:`e_1, \dots, e_d` and :math:`s \mathbf 1`, moved by their mean
    and made unit:

    .. math::
        \frac{v_i - \mu \Sigma v}{n} \; (i \le d), \quad \frac{(s - \mu) \Sigma v}{n}, \qquad
        s = \frac{1 - \sqrt{1 + d}}{d}, \; \mu = \frac{1 + s}{d + 1}, \; n = \sqrt{d} \, |s - \mu|

    Example:
        >>> corners = simplex_logits(torch.eye(2)).T  # a triangle
        >>> corners @ corners.T
        tensor([[ 1.0000, -0.5000, -0.5000],
                [-0.5000,  1.0000, -0.5000],
                [-0.5000, -0.5000,  1.0000]])
    """
    dim = vectors.shape[1]
    last = (1 - math.sqrt(1 + dim)) / dim
    mean = (1 + last) / (dim + 1)
    length = math.sqrt(dim) * abs(last - mean)
    total = vectors.sum(dim=-1, keepdim=True)
    return torch.cat([vectors - mean * total, (last - mean) * total], dim=-1) / length
