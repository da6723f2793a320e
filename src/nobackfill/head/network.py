"""The map of a head: what closed form found, and a small network that corrects it."""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from nobackfill.adapters import Affine


class HeadNetwork(nn.Module):
    r"""New vectors in, vectors of the old space out.

    .. math::
        h(v) = W \hat v + b + W_2\, d(\mathrm{GELU}(W_1\, d(\sqrt{n}\, \hat v) + b_1)) + b_2,
        \qquad \hat v = v / \lVert v \rVert

    with dropout :math:`d` in training and :math:`n` the new dimension. :math:`W_2, b_2` begin at 0:
    at first the network is the map in closed form.

    Args:
        new_dim: Of what comes in.
        old_dim: Of what goes out.
        hidden: Width of the correction; 0 for none.
        dropout: Share that it loses in training.
    """

    def __init__(self, new_dim: int, old_dim: int, *, hidden: int = 1024, dropout: float = 0.3):
        super().__init__()
        self.affine = nn.Linear(new_dim, old_dim)
        self.inner = nn.Linear(new_dim, hidden) if hidden else None
        self.outer = nn.Linear(hidden, old_dim) if hidden else None
        self.dropout = nn.Dropout(dropout)
        if self.outer is not None:
            nn.init.zeros_(self.outer.weight)
            nn.init.zeros_(self.outer.bias)

    @torch.no_grad()
    def start_from(self, affine: Affine) -> None:
        """Takes over a map in closed form."""
        self.affine.weight.copy_(affine.weight)
        self.affine.bias.copy_(affine.bias)

    def forward(self, new: Float[Tensor, "rows new_dim"]) -> Float[Tensor, "rows old_dim"]:
        """Maps vectors of any length; what comes out is not of unit length."""
        unit = F.normalize(new, dim=1)
        out: Tensor = self.affine(unit)
        if self.inner is not None and self.outer is not None:
            inner = F.gelu(self.inner(self.dropout(unit) * unit.shape[1] ** 0.5))
            out = out + self.outer(self.dropout(inner))
        return out
