"""The map of a head: what closed form found, and a small network that corrects it."""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from nobackfill.head.closed_form import Affine
from nobackfill.head.extra_dims import Extra


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
        extra: How many dimensions `embed` puts behind those of the old space; see `Extra`.
    """

    def __init__(
        self,
        new_dim: int,
        old_dim: int,
        *,
        hidden: int = 1024,
        dropout: float = 0.3,
        extra: int = 0,
    ):
        super().__init__()
        self.extra = Extra(new_dim, extra) if extra else None
        self.affine = nn.Linear(new_dim, old_dim)
        self.inner = nn.Linear(new_dim, hidden) if hidden else None
        self.outer = nn.Linear(hidden, old_dim) if hidden else None
        self.dropout = dropout
        if self.outer is not None:
            nn.init.zeros_(self.outer.weight)
            nn.init.zeros_(self.outer.bias)

    @property
    def new_dim(self) -> int:
        """Of what comes in."""
        return self.affine.in_features

    @property
    def old_dim(self) -> int:
        """Of the old space."""
        return self.affine.out_features

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
            inner = F.gelu(self.inner(self._dropped(unit) * unit.shape[1] ** 0.5))
            out = out + self.outer(self._dropped(inner))
        return out

    def embed(self, new: Float[Tensor, "rows new_dim"]) -> Float[Tensor, "rows dim"]:
        """Vectors as they are stored and ask: of unit length in the old space, then the extra."""
        unit = F.normalize(self(new), dim=1)
        return unit if self.extra is None else torch.cat([unit, self.extra(new)], dim=1)

    def _dropped(self, values: Float[Tensor, "rows dim"]) -> Float[Tensor, "rows dim"]:
        if not self.training or self.dropout == 0:
            return values
        if values.device.type != "cpu":
            return F.dropout(values, self.dropout)
        return dropped(values, self.dropout)


def dropped(values: Float[Tensor, "rows dim"], share: float) -> Float[Tensor, "rows dim"]:
    """Dropout by one random byte per entry: the share is that of the nearest 256th.

    Torch's own draws a whole number for each entry on a CPU, and takes as long as the layers do.

    Args:
        values: What loses entries; the others grow so that the mean stays.
        share: How many of them.
    """
    lost = round(256 * share)
    words = torch.empty(-(-values.numel() // 8), dtype=torch.int64).random_(-(2**63), 2**63 - 1)
    stays = (words.view(torch.uint8)[: values.numel()] >= lost).view(values.shape)
    return values * stays * (256 / (256 - lost)) if lost < 256 else values * 0
