"""Class means of the new model from what it makes of the training images anyway."""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn


class RunningMeans(nn.Module):
    r"""Sums of the unit embeddings of each class over an epoch.

    .. math::
        q_c = \frac{m_c}{\lVert m_c \rVert}, \qquad
        m_c = \sum_{b} \sum_{i \in b : y_i = c} \frac{e_i}{\lVert e_i \rVert}

    with each :math:`e_i` as the model was at its batch `b`, of the augmented image, in train mode:
    an approximation of the means over the training set at the end of the epoch. A class that no
    batch held keeps its mean of before.

    Args:
        num_classes: Of the training set.
        dim: Of the embedding.
    """

    sums: Float[Tensor, "classes dim"]
    last: Float[Tensor, "classes dim"]

    def __init__(self, num_classes: int, dim: int):
        super().__init__()
        self.register_buffer("sums", torch.zeros(num_classes, dim))
        self.register_buffer("last", torch.zeros(num_classes, dim))

    @torch.no_grad()
    def add(self, new: Float[Tensor, "batch dim"], labels: Int[Tensor, " batch"]) -> None:
        """Takes a training batch into account."""
        self.sums.index_add_(0, labels, F.normalize(new, dim=-1))

    def take(self) -> Float[Tensor, "classes dim"] | None:
        """The means of the epoch that has ended; None before every class was seen once."""
        seen = self.sums.norm(dim=-1, keepdim=True) > 0
        self.last = torch.where(seen, F.normalize(self.sums, dim=-1), self.last)
        self.sums.zero_()
        return self.last.clone() if bool((self.last != 0).any(dim=-1).all()) else None
