"""Maps from the new space into the old one in closed form: no labels, no training."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from nobackfill.errors import ConfigError, DataError

SAME = 1e-12  # variance that is nothing but rounding
BLOCK = 16_384  # rows that are looked at in one go


@dataclass(frozen=True, eq=False)
class Affine:
    r"""A map of unit vectors, :math:`v \mapsto W v + b`.

    Attributes:
        weight: :math:`W`.
        bias: :math:`b`.
    """

    weight: Float[Tensor, "old_dim new_dim"]
    bias: Float[Tensor, " old_dim"]

    def to(self, precision: torch.dtype) -> "Affine":
        """The same map in another precision."""
        return Affine(self.weight.to(precision), self.bias.to(precision))

    def __call__(self, new: Float[Tensor, "rows new_dim"]) -> Float[Tensor, "rows old_dim"]:
        """Maps vectors of any length to unit vectors of the old space."""
        return F.normalize(F.normalize(new, dim=1) @ self.weight.T + self.bias, dim=1)


@dataclass(frozen=True, eq=False)
class Moments:
    r"""All that a map in closed form must know of the vectors of both models.

    With unit rows less their means, :math:`\tilde N` and :math:`\tilde O`:

    Attributes:
        new_mean: :math:`\bar n`.
        old_mean: :math:`\bar o`.
        new_new: :math:`\tilde N^\top \tilde N`.
        old_new: :math:`\tilde O^\top \tilde N`.
    """

    new_mean: Float[Tensor, " new_dim"]
    old_mean: Float[Tensor, " old_dim"]
    new_new: Float[Tensor, "new_dim new_dim"]
    old_new: Float[Tensor, "old_dim new_dim"]


def moments(parts: Iterable[tuple[Tensor, Tensor]]) -> Moments:
    """Adds up what closed forms must know; vectors are looked at once, a part at a time.

    Products are made in single precision (double where the vectors are) about the means of the
    first part, so that little cancels, and added up in double.

    Args:
        parts: New vectors of some items with the old vectors of the same, then those of others.
    """
    about: list[Tensor] = []
    rows = 0
    for new, old in parts:
        unit = [_unit(side) for side in (new, old)]
        if not about:
            about = [part.mean(dim=0).double() for part in unit]
            sums = [torch.zeros_like(middle) for middle in about]
            squares = torch.zeros_like(about[1][0])
            new_new, old_new = about[0].outer(about[0]) * 0, about[1].outer(about[0]) * 0
        for part, middle, total in zip(unit, about, sums, strict=True):
            total += part.sub_(middle).sum(dim=0)
        new_new += unit[0].T @ unit[0]
        old_new += unit[1].T @ unit[0]
        squares += unit[1].square().sum()
        rows += len(new)
    if rows < 2:
        raise DataError(f"wanted two items or more to fit a map to, but got {rows}.")
    shift = [total / rows for total in sums]
    new_new -= rows * shift[0].outer(shift[0])
    old_new -= rows * shift[1].outer(shift[0])
    _check_spread("new", new_new.trace(), rows)
    _check_spread("old", squares - rows * shift[1].square().sum(), rows)
    means = [middle + more for middle, more in zip(about, shift, strict=True)]
    return Moments(means[0], means[1], new_new, old_new)


def in_parts(
    new: Float[Tensor, "rows new_dim"], old: Float[Tensor, "old_rows old_dim"]
) -> Iterator[tuple[Tensor, Tensor]]:
    """New and old vectors of the same items, some at a time."""
    if len(new) != len(old):
        raise DataError(
            f"wanted a new and an old vector of each item, but got {len(new)} and {len(old)}."
        )
    return zip(new.split(BLOCK), old.split(BLOCK), strict=True)


def procrustes(
    new: Float[Tensor, "rows new_dim"], old: Float[Tensor, "old_rows old_dim"]
) -> Affine:
    """The rotation that brings new vectors to old ones; see `procrustes_of`.

    Args:
        new: New vectors of some items.
        old: Old vectors of the same items.
    """
    return procrustes_of(moments(in_parts(new, old))).to(_precision(new))


def ridge(
    new: Float[Tensor, "rows new_dim"],
    old: Float[Tensor, "old_rows old_dim"],
    *,
    strength: float = 0.01,
) -> Affine:
    """The linear map with the least squared error, kept small; see `ridge_of`.

    Args:
        new: New vectors of some items.
        old: Old vectors of the same items.
        strength: How small it is kept.
    """
    return ridge_of(moments(in_parts(new, old)), strength=strength).to(_precision(new))


def procrustes_of(known: Moments) -> Affine:
    r"""The rotation (and projection, where dimensions differ) that brings new vectors to old ones.

    .. math::
        R = U V^\top \;\text{with}\; U S V^\top = \tilde O^\top \tilde N, \qquad
        v \mapsto \bar o + s R (v - \bar n), \qquad
        s = \frac{\sum S}{\lVert \tilde N R^\top \rVert^2}

    with unit rows, their means :math:`\bar n, \bar o`, and what is left of them :math:`\tilde N,
    \tilde O` (centred Procrustes; Schönemann, 1966). Where new vectors are longer, the scale is the
    best one for what the projection leaves of them.
    """
    left, size, right = torch.linalg.svd(known.old_new, full_matrices=False)
    turn = left @ right
    weight = (size.sum() / (turn @ known.new_new @ turn.T).trace()) * turn
    return Affine(weight, known.old_mean - weight @ known.new_mean)


def ridge_of(known: Moments, *, strength: float = 0.01) -> Affine:
    r"""The linear map with the least squared error, kept small.

    .. math::
        W = \tilde O^\top \tilde N \left( \tilde N^\top \tilde N + \lambda
        \tfrac{\lVert \tilde N \rVert^2}{d} I \right)^{-1}, \qquad b = \bar o - W \bar n

    with unit rows, centred as in `procrustes_of`, and :math:`d` the new dimension: the strength
    :math:`\lambda` is in units of the mean variance of a dimension.

    Args:
        known: Of the vectors.
        strength: :math:`\lambda`.
    """
    if strength <= 0:
        raise ConfigError(f"wanted a strength above 0, but got {strength}.")
    spread = known.new_new.clone()
    spread.diagonal().add_(strength * spread.diagonal().mean())
    weight = torch.linalg.solve(spread, known.old_new.T).T
    return Affine(weight, known.old_mean - weight @ known.new_mean)


def _precision(vectors: Tensor) -> torch.dtype:
    """Single, or double where the vectors are."""
    return torch.promote_types(vectors.dtype, torch.float32)


def _unit(vectors: Float[Tensor, "rows dim"]) -> Float[Tensor, "rows dim"]:
    return F.normalize(vectors.to(_precision(vectors)), dim=1)


def _check_spread(side: str, total: Tensor, rows: int) -> None:
    """Refuses vectors that are all the same."""
    if not total > SAME * rows:  # or NaN
        raise DataError(
            f"wanted {side} vectors that differ from each other, but they all point the same way, "
            f"or hold NaN: no map can be found. Check what embedded them."
        )
