"""Networks of a head: a linear map, a small correction and optional extra dimensions."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from nobackfill.head.closed_form import Affine, Moments
from nobackfill.head.schedule import FitConfig


class ExtraDims(nn.Module):
    r"""Extra dimensions for re-embedded items, behind those of the old space.

    .. math::
        e(v) = s \, \frac{P (\hat v - \bar n)}{\lVert P (\hat v - \bar n) \rVert}

    with the first principal directions :math:`P` of the new vectors. Old vectors have zeros there,
    so scores against them do not change: :math:`[q, e(q)] \cdot [g, 0] = q \cdot g`. Between new
    vectors, the extra dimensions add :math:`s^2` times the cosine of their projections.
    """

    scale: Float[Tensor, "1"]

    def __init__(self, new_dim: int, dim: int):
        super().__init__()
        self.linear = nn.Linear(new_dim, dim)
        self.register_buffer("scale", torch.ones(1))

    @torch.no_grad()
    def start_from(self, statistics: Moments) -> None:
        """Sets the directions in which new vectors vary most."""
        weight = torch.linalg.eigh(statistics.new_new).eigenvectors.T.flip(0)
        weight = weight[: self.linear.out_features]
        self.linear.weight.copy_(weight)
        self.linear.bias.copy_(-weight @ statistics.new_mean)

    def forward(self, new: Float[Tensor, "rows new_dim"]) -> Float[Tensor, "rows extra"]:
        """Returns the extra dimensions of each vector; every row has the length `scale`."""
        return self.scale * F.normalize(self.linear(F.normalize(new, dim=1)), dim=1)


class HeadNetwork(nn.Module):
    r"""Maps new vectors into the old space.

    .. math::
        h(v) = W \hat v + b + W_2\, d(\mathrm{GELU}(W_1\, d(\sqrt{n}\, \hat v) + b_1)) + b_2,
        \qquad \hat v = v / \lVert v \rVert

    with dropout :math:`d` in training and the new dimension :math:`n`. :math:`W_2` and :math:`b_2`
    start at 0, so that the network starts as the closed form.
    With `extra`, `embed` appends dimensions; see `ExtraDims`.
    """

    def __init__(
        self,
        new_dim: int,
        old_dim: int,
        *,
        hidden: int = FitConfig.hidden,
        dropout: float = FitConfig.dropout,
        extra: int = 0,
    ):
        super().__init__()
        self.extra = ExtraDims(new_dim, extra) if extra else None
        self.affine = nn.Linear(new_dim, old_dim)
        self.inner = nn.Linear(new_dim, hidden) if hidden else None
        self.outer = nn.Linear(hidden, old_dim) if hidden else None
        self.dropout = dropout
        if self.outer is not None:
            nn.init.zeros_(self.outer.weight)
            nn.init.zeros_(self.outer.bias)

    @property
    def new_dim(self) -> int:
        """Dimension of the new vectors."""
        return self.affine.in_features

    @property
    def old_dim(self) -> int:
        """Dimension of the old space."""
        return self.affine.out_features

    @property
    def widths(self) -> list[int]:
        """Dimension of the new vectors of each modality: there is one."""
        return [self.new_dim]

    @torch.no_grad()
    def start_from(self, affine: Affine) -> None:
        """Sets the linear map to a closed form."""
        self.affine.weight.copy_(affine.weight)
        self.affine.bias.copy_(affine.bias)

    def forward(
        self, new: Float[Tensor, "rows new_dim"], modality: Int[Tensor, " rows"] | None = None
    ) -> Float[Tensor, "rows old_dim"]:
        """Maps vectors of any length, whatever their modality; the result is not normalized."""
        unit = F.normalize(new, dim=1)
        out: Tensor = self.affine(unit)
        if self.inner is not None and self.outer is not None:
            inner = F.gelu(self.inner(self._dropout(unit) * unit.shape[1] ** 0.5))
            out = out + self.outer(self._dropout(inner))
        return out

    def embed(
        self, new: Float[Tensor, "rows new_dim"], modality: Int[Tensor, " rows"] | None = None
    ) -> Float[Tensor, "rows dim"]:
        """Returns vectors for search: unit length in the old space, then the extra dimensions."""
        unit = F.normalize(self(new), dim=1)
        return unit if self.extra is None else torch.cat([unit, self.extra(new)], dim=1)

    def _dropout(self, values: Float[Tensor, "rows dim"]) -> Float[Tensor, "rows dim"]:
        if not self.training or self.dropout == 0:
            return values
        if values.device.type != "cpu":
            return F.dropout(values, self.dropout)
        return byte_dropout(values, self.dropout)


def byte_dropout(values: Float[Tensor, "rows dim"], share: float) -> Float[Tensor, "rows dim"]:
    """Dropout with one random byte per entry; the share is rounded to a multiple of 1/256.

    On a CPU, torch's own dropout draws a whole number per entry and takes as long as the layers.
    The rest is scaled up so that the mean stays the same.
    """
    lost = round(256 * share)
    words = torch.empty(-(-values.numel() // 8), dtype=torch.int64).random_(-(2**63), 2**63 - 1)
    kept = (words.view(torch.uint8)[: values.numel()] >= lost).view(values.shape)
    return values * kept * (256 / (256 - lost)) if lost < 256 else values * 0


class ModalityNetwork(nn.Module):
    r"""Maps new vectors of several modalities into the old space.

    .. math::
        h(v_i) = h_{m_i}(v_i)

    with the modality :math:`m_i` of each item and a network :math:`h_m` for each modality. A
    network reads as many of the first dimensions as its modality has; zeros follow them.
    """

    extra = None  # extra dimensions exist for heads of one modality only

    def __init__(self, networks: Sequence[HeadNetwork]):
        super().__init__()
        self.networks = nn.ModuleList(networks)

    @property
    def parts(self) -> list[HeadNetwork]:
        """Networks by the numbers of their modalities."""
        return [network for network in self.networks if isinstance(network, HeadNetwork)]

    @property
    def widths(self) -> list[int]:
        """Number of dimensions of each modality."""
        return [network.new_dim for network in self.parts]

    @property
    def new_dim(self) -> int:
        """Dimension of the new vectors."""
        return max(self.widths)

    @property
    def old_dim(self) -> int:
        """Dimension of the old space."""
        return self.parts[0].old_dim

    def start_from(self, *affines: Affine) -> None:
        """Sets the linear map of each modality to a closed form."""
        for network, affine in zip(self.parts, affines, strict=True):
            network.start_from(affine)

    def forward(
        self, new: Float[Tensor, "rows new_dim"], modality: Int[Tensor, " rows"] | None = None
    ) -> Float[Tensor, "rows old_dim"]:
        """Maps vectors of any length; the result is not normalized."""
        assert modality is not None
        rows = [(modality == number).nonzero().flatten() for number in range(len(self.networks))]
        parts = [
            network(new[own_rows, : network.new_dim])
            for network, own_rows in zip(self.parts, rows, strict=True)
            if len(own_rows)
        ]
        return torch.cat(parts)[torch.cat(rows).argsort()]

    def embed(
        self, new: Float[Tensor, "rows new_dim"], modality: Int[Tensor, " rows"] | None = None
    ) -> Float[Tensor, "rows old_dim"]:
        """Returns vectors for search: of unit length in the old space."""
        return F.normalize(self(new, modality), dim=1)


Network = HeadNetwork | ModalityNetwork


def make_network(widths: Sequence[int], old_dim: int, *, hidden: int, dropout: float) -> Network:
    """Makes a network; for several widths, one with a part for each modality."""
    networks = [HeadNetwork(width, old_dim, hidden=hidden, dropout=dropout) for width in widths]
    return networks[0] if len(networks) == 1 else ModalityNetwork(networks)
