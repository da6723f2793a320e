"""Closed-form maps from the new space into the old one; they need no labels and no training."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from nobackfill.core.memory import check_memory
from nobackfill.errors import ConfigError, DataError
from nobackfill.head.examples import Examples

ROUNDING = 1e-12  # largest variance that rounding alone explains
BLOCK = 16_384  # rows per block
RIGID = "procrustes"  # name of the rotation
COPIES = 4  # of the products that exist at a time
STRENGTHS = (1e-4, 1e-3, 1e-2, 1e-1)  # of the ridge regressions that a head tries


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
        """Converts the map to another precision."""
        return Affine(self.weight.to(precision), self.bias.to(precision))

    def __call__(self, new: Float[Tensor, "rows new_dim"]) -> Float[Tensor, "rows old_dim"]:
        """Maps vectors of any length to unit vectors of the old space."""
        return F.normalize(F.normalize(new, dim=1) @ self.weight.T + self.bias, dim=1)


@dataclass(frozen=True, eq=False)
class Moments:
    r"""Statistics of both models' vectors from which every closed form follows.

    With centred unit rows, :math:`\tilde N` and :math:`\tilde O`:

    Attributes:
        new_mean: :math:`\bar n`.
        old_mean: :math:`\bar o`.
        new_new: :math:`\tilde N^\top \tilde N`.
        old_new: :math:`\tilde O^\top \tilde N`.
        rows: Number of rows.
    """

    new_mean: Float[Tensor, " new_dim"]
    old_mean: Float[Tensor, " old_dim"]
    new_new: Float[Tensor, "new_dim new_dim"]
    old_new: Float[Tensor, "old_dim new_dim"]
    rows: int


def moments(parts: Iterable[tuple[Tensor, Tensor]], *, unit_old: bool = True) -> Moments:
    """Computes the statistics in one pass over blocks of vectors.

    Without `unit_old` the old rows, or the targets in their place, keep their lengths.

    Products are computed in single precision (double for double vectors) about the means of the
    first block, which limits cancellation. Sums are accumulated in double precision.
    """
    centres: list[Tensor] = []
    rows = 0
    for new, old in parts:
        unit = [_unit(new), _unit(old) if unit_old else old.to(_precision(new), copy=True)]
        # The means of the first block are the origin of all sums.
        if not centres:
            _check_size(new.shape[1], old.shape[1])
            centres = [part.mean(dim=0).double() for part in unit]
            sums = [torch.zeros_like(centre) for centre in centres]
            squares = torch.zeros_like(centres[1][0])
            new_new, old_new = centres[0].outer(centres[0]) * 0, centres[1].outer(centres[0]) * 0
        for part, centre, total in zip(unit, centres, sums, strict=True):
            total += part.sub_(centre).sum(dim=0)
        new_new += unit[0].T @ unit[0]
        old_new += unit[1].T @ unit[0]
        squares += unit[1].square().sum()
        rows += len(new)
    if rows < 2:
        raise DataError(f"A map needs two items or more, but there are {rows}. Pass more items.")
    # Move the origin to the means of all rows.
    shift = [total / rows for total in sums]
    new_new -= rows * shift[0].outer(shift[0])
    old_new -= rows * shift[1].outer(shift[0])
    _check_spread("new", new_new.trace(), rows)
    _check_spread("old", squares - rows * shift[1].square().sum(), rows)
    means = [centre + offset for centre, offset in zip(centres, shift, strict=True)]
    return Moments(means[0], means[1], new_new, old_new, rows)


def without(total: Moments, part: Moments) -> Moments:
    r"""Returns the statistics of all rows but those of a part.

    .. math::
        \bar n_r = \frac{N \bar n - N_p \bar n_p}{N_r}, \qquad
        C_r = C - C_p - N_p (\bar n_p - \bar n)(\bar n_p - \bar n)^\top
        - N_r (\bar n_r - \bar n)(\bar n_r - \bar n)^\top

    with the number of rows :math:`N`, the mean and the centred products :math:`C` of all rows, of
    the part :math:`p`, and of the rest :math:`r`. The products of old and new rows are alike.
    """
    rows = total.rows - part.rows
    rest = [
        (total.rows * whole - part.rows * own) / rows
        for whole, own in ((total.new_mean, part.new_mean), (total.old_mean, part.old_mean))
    ]
    new_new, old_new = total.new_new - part.new_new, total.old_new - part.old_new
    for number, means in ((part.rows, (part.new_mean, part.old_mean)), (rows, rest)):
        new, old = means[0] - total.new_mean, means[1] - total.old_mean
        new_new = new_new - number * new.outer(new)
        old_new = old_new - number * old.outer(new)
    return Moments(rest[0], rest[1], new_new, old_new, rows)


def paired_blocks(
    new: Float[Tensor, "rows new_dim"], old: Float[Tensor, "old_rows old_dim"]
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yields new and old vectors of the same items, block by block."""
    if len(new) != len(old):
        raise DataError(
            f"There are {len(new)} new and {len(old)} old vectors. Pass one of each per item."
        )
    return zip(new.split(BLOCK), old.split(BLOCK), strict=True)


def procrustes(
    new: Float[Tensor, "rows new_dim"], old: Float[Tensor, "old_rows old_dim"]
) -> Affine:
    """Fits the rotation of new vectors onto old ones; see `procrustes_of`."""
    return procrustes_of(moments(paired_blocks(new, old))).to(_precision(new))


def ridge(
    new: Float[Tensor, "rows new_dim"],
    old: Float[Tensor, "old_rows old_dim"],
    *,
    strength: float = 0.01,
) -> Affine:
    """Fits a linear map by ridge regression; see `ridge_of`."""
    return ridge_of(moments(paired_blocks(new, old)), strength=strength).to(_precision(new))


def procrustes_of(statistics: Moments) -> Affine:
    r"""Returns the rotation (and projection, if dimensions differ) of new vectors onto old ones.

    .. math::
        R = U V^\top \;\text{with}\; U S V^\top = \tilde O^\top \tilde N, \qquad
        v \mapsto \bar o + s R (v - \bar n), \qquad
        s = \frac{\sum S}{\lVert \tilde N R^\top \rVert^2}

    with the means :math:`\bar n, \bar o` of the unit rows and the centred rows :math:`\tilde N,
    \tilde O` (centred Procrustes; Schönemann, 1966). If the new vectors have more dimensions, the
    scale is the best one for their projection.
    """
    left, size, right = torch.linalg.svd(statistics.old_new, full_matrices=False)
    turn = left @ right
    weight = (size.sum() / (turn @ statistics.new_new @ turn.T).trace()) * turn
    return Affine(weight, statistics.old_mean - weight @ statistics.new_mean)


def ridge_of(statistics: Moments, *, strength: float = 0.01) -> Affine:
    r"""Returns the linear map with the least penalised squared error.

    .. math::
        W = \tilde O^\top \tilde N \left( \tilde N^\top \tilde N + \lambda
        \tfrac{\lVert \tilde N \rVert^2}{d} I \right)^{-1}, \qquad b = \bar o - W \bar n

    with rows as in `procrustes_of` and the new dimension :math:`d`. The strength :math:`\lambda`
    is in units of the mean variance of a dimension.
    """
    if strength <= 0:
        raise ConfigError(f"`strength` must be above 0, but it is {strength}.")
    spread = statistics.new_new.clone()
    spread.diagonal().add_(strength * spread.diagonal().mean())
    weight = torch.linalg.solve(spread, statistics.old_new.T).T
    return Affine(weight, statistics.old_mean - weight @ statistics.new_mean)


def closed_forms(
    examples: Examples, *, modality: int | None = None, width: int | None = None
) -> dict[str, Affine]:
    """Fits every closed form; returns the maps by name.

    With `modality`, only to its items, by the first `width` dimensions.
    """
    return forms_of(moments((new[:, :width], old) for new, old in examples.blocks(modality)))


def forms_of(statistics: Moments) -> dict[str, Affine]:
    """Returns the rotation and the ridge regressions by name, in single precision."""
    forms = {RIGID: procrustes_of(statistics)}
    forms |= {
        f"ridge {strength:g}": ridge_of(statistics, strength=strength) for strength in STRENGTHS
    }
    return {name: form.to(torch.float32) for name, form in forms.items()}


def _check_size(new_dim: int, old_dim: int) -> None:
    """Raises if there is no memory for the products of dimensions."""
    check_memory(
        COPIES * 8 * new_dim * (new_dim + old_dim),
        f"A map of {new_dim:,} dimensions to {old_dim:,}",
        "Reduce the dimensions, e.g. to 1,024 by a principal component analysis.",
    )


def _precision(vectors: Tensor) -> torch.dtype:
    """Returns double for double vectors, else single."""
    return torch.promote_types(vectors.dtype, torch.float32)


def _unit(vectors: Float[Tensor, "rows dim"]) -> Float[Tensor, "rows dim"]:
    return F.normalize(vectors.to(_precision(vectors)), dim=1)


def _check_spread(side: str, total: Tensor, rows: int) -> None:
    """Raises DataError if all vectors are equal."""
    if not total > ROUNDING * rows:  # or NaN
        raise DataError(
            f"The {side} vectors do not differ from each other, or contain NaN, so no map can be "
            f"fitted. Check the model that embedded them."
        )
