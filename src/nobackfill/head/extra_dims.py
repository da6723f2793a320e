"""Dimensions behind those of the old space, for items that are embedded again."""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from nobackfill.head.closed_form import Moments


class Extra(nn.Module):
    r"""Dimensions that old vectors do not have, for items that are embedded again.

    .. math::
        e(v) = s \, \frac{P (\hat v - \bar n)}{\lVert P (\hat v - \bar n) \rVert}

    with the first principal directions :math:`P` of the new vectors. Against an old vector, which
    has zeros there, nothing changes: :math:`[q, e(q)] \cdot [g, 0] = q \cdot g`. Between new ones,
    :math:`s^2` times their likeness in the new space is added to that in the old one.

    Args:
        new_dim: Of what comes in.
        dim: How many.
    """

    scale: Float[Tensor, "1"]

    def __init__(self, new_dim: int, dim: int):
        super().__init__()
        self.linear = nn.Linear(new_dim, dim)
        self.register_buffer("scale", torch.ones(1))

    @torch.no_grad()
    def start_from(self, known: Moments) -> None:
        """Takes over the directions in which new vectors vary most."""
        weight = torch.linalg.eigh(known.new_new).eigenvectors.T.flip(0)
        weight = weight[: self.linear.out_features]
        self.linear.weight.copy_(weight)
        self.linear.bias.copy_(-weight @ known.new_mean)

    def forward(self, new: Float[Tensor, "rows new_dim"]) -> Float[Tensor, "rows extra"]:
        """What is added to each vector, all of one length."""
        return self.scale * F.normalize(self.linear(F.normalize(new, dim=1)), dim=1)
