"""Maps from the new space into the old one in closed form: no labels, no training."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from nobackfill.errors import ConfigError, DataError

SAME = 1e-12  # variance that is nothing but rounding


@dataclass(frozen=True, eq=False)
class Affine:
    r"""A map of unit vectors, :math:`v \mapsto W v + b`.

    Attributes:
        weight: :math:`W`.
        bias: :math:`b`.
    """

    weight: Float[Tensor, "old_dim new_dim"]
    bias: Float[Tensor, " old_dim"]

    def __call__(self, new: Float[Tensor, "rows new_dim"]) -> Float[Tensor, "rows old_dim"]:
        """Maps vectors of any length to unit vectors of the old space."""
        return F.normalize(F.normalize(new, dim=1) @ self.weight.T + self.bias, dim=1)


def procrustes(
    new: Float[Tensor, "rows new_dim"], old: Float[Tensor, "old_rows old_dim"]
) -> Affine:
    r"""The rotation (and projection, where dimensions differ) that brings new vectors to old ones.

    .. math::
        R = U V^\top \;\text{with}\; U S V^\top = \tilde O^\top \tilde N, \qquad
        v \mapsto \bar o + s R (v - \bar n), \qquad
        s = \frac{\sum S}{\lVert \tilde N R^\top \rVert^2}

    with unit rows, their means :math:`\bar n, \bar o`, and what is left of them :math:`\tilde N,
    \tilde O` (centred Procrustes; Schönemann, 1966). Where new vectors are longer, the scale is the
    best one for what the projection leaves of them.

    Args:
        new: New vectors of some items.
        old: Old vectors of the same items.
    """
    new, old, new_mean, old_mean = _centred(new, old)
    left, size, right = torch.linalg.svd(old.T @ new, full_matrices=False)
    turn = left @ right
    weight = (size.sum() / (new @ turn.T).square().sum()) * turn
    return Affine(weight, old_mean - weight @ new_mean)


def ridge(
    new: Float[Tensor, "rows new_dim"],
    old: Float[Tensor, "old_rows old_dim"],
    *,
    strength: float = 0.01,
) -> Affine:
    r"""The linear map with the least squared error, kept small.

    .. math::
        W = \tilde O^\top \tilde N \left( \tilde N^\top \tilde N + \lambda
        \tfrac{\lVert \tilde N \rVert^2}{d} I \right)^{-1}, \qquad b = \bar o - W \bar n

    with unit rows, centred as in `procrustes`, and :math:`d` the new dimension: the strength
    :math:`\lambda` is in units of the mean variance of a dimension.

    Args:
        new: New vectors of some items.
        old: Old vectors of the same items.
        strength: :math:`\lambda`.
    """
    if strength <= 0:
        raise ConfigError(f"wanted a strength above 0, but got {strength}.")
    new, old, new_mean, old_mean = _centred(new, old)
    spread = new.T @ new
    spread.diagonal().add_(strength * spread.diagonal().mean())
    weight = torch.linalg.solve(spread, new.T @ old).T
    return Affine(weight, old_mean - weight @ new_mean)


def _centred(
    new: Float[Tensor, "rows new_dim"], old: Float[Tensor, "old_rows old_dim"]
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Unit rows less their mean, and the means."""
    if len(new) != len(old):
        raise DataError(
            f"wanted a new and an old vector of each item, but got {len(new)} and {len(old)}."
        )
    if len(new) < 2:
        raise DataError(f"wanted two items or more to fit a map to, but got {len(new)}.")
    unit = [
        F.normalize(part.to(torch.promote_types(part.dtype, torch.float32)), dim=1)
        for part in (new, old)
    ]
    means = [part.mean(dim=0) for part in unit]
    centred = [part - mean for part, mean in zip(unit, means, strict=True)]
    for name, part in zip(("new", "old"), centred, strict=True):
        if not part.square().sum() > SAME * len(part):  # or NaN
            raise DataError(
                f"wanted {name} vectors that differ from each other, but they all point the same "
                f"way, or hold NaN: no map can be found. Check what embedded them."
            )
    return centred[0], centred[1], means[0], means[1]
