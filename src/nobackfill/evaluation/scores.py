"""Scores of upgrades: P-scores of one upgrade, AC and AM of a sequence."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, isfinite
from typing import Any

import numpy as np

from nobackfill.errors import DataError

Value = Any  # a number, or a list, array or tensor of one number per test set


@dataclass(frozen=True)
class PScores:
    """P-scores of an upgrade, in percent; 50 is neutral."""

    up: float  # above 50 if new/new beats the independent model
    comp: float  # above 50 if new/old beats old/old: if the upgrade is compatible
    one: float  # harmonic mean of both


def p_scores(new_new: Value, new_old: Value, old_old: Value, independent: Value) -> PScores:
    r"""Returns the P-scores of Pan et al. (AdvBCT, CVPR 2023), reconstructed from their tables.

    .. math::
        P_{up} = \sigma\!\left(\frac{M(n,n) - M^*}{M^*}\right), \quad
        P_{comp} = \sigma\!\left(\frac{M(n,o) - M(o,o)}{M^* - M(o,o)}\right), \quad
        P_1 = \frac{2 P_{up} P_{comp}}{P_{up} + P_{comp}}

    with the logistic function :math:`\sigma` and the independent model's self-test :math:`M^*`.
    For sequences of one value per test set, each score is the mean over the test sets: the mean of
    the :math:`P_1`, not the :math:`P_1` of the means.

    Raises:
        DataError: If the independent model is not better than the old one, so that there is no
            gain to compare with.

    Example:
        >>> p_scores(new_new=0.6530, new_old=0.5436, old_old=0.5326, independent=0.7124)
        PScores(up=47.91..., comp=51.52..., one=49.65...)
    """
    columns = [
        np.atleast_1d(np.asarray(value, dtype=np.float64)).tolist()
        for value in (new_new, new_old, old_old, independent)
    ]
    if len({len(column) for column in columns}) != 1 or not columns[0]:
        raise DataError(
            f"each argument needs one value per test set, but they have "
            f"{', '.join(str(len(column)) for column in columns)}. Pass equally many."
        )
    rows = [_p_scores_of_one(*row) for row in zip(*columns, strict=True)]
    return PScores(
        up=sum(row.up for row in rows) / len(rows),
        comp=sum(row.comp for row in rows) / len(rows),
        one=sum(row.one for row in rows) / len(rows),
    )


def p_scores_or_reason(
    new_new: float, new_old: float, old_old: float, independent: float
) -> tuple[PScores | None, str | None]:
    """Returns the P-scores of one test set, or the reason why there are none."""
    try:
        return p_scores(new_new, new_old, old_old, independent), None
    except DataError as error:
        return None, str(error)


def _p_scores_of_one(new_new: float, new_old: float, old_old: float, independent: float) -> PScores:
    """Returns the scores on one test set."""
    if not all(map(isfinite, (new_new, new_old, old_old, independent))):
        raise DataError(
            f"P-scores need four numbers, but got {new_new}, {new_old}, {old_old}, {independent}. "
            f"Leave out what was not measured."
        )
    if not independent > max(old_old, 0.0):
        raise DataError(
            f"P-scores need an independent model that beats the old one, but it reaches "
            f"{independent:.4g} and the old model {old_old:.4g}, so there is no gain to compare "
            f"with. Report the raw values."
        )
    up = 100 * _logistic((new_new - independent) / independent)
    comp = 100 * _logistic((new_old - old_old) / (independent - old_old))
    return PScores(up, comp, 2 * up * comp / (up + comp))


def _logistic(x: float) -> float:
    """1 / (1 + exp(-x)), without overflow on either side."""
    return 1 / (1 + exp(-x)) if x >= 0 else exp(x) / (1 + exp(x))


@dataclass(frozen=True)
class Compatibility:
    """Scores of a sequence of upgrades."""

    ac: float  # share of upgrades, over any number of steps, that are compatible
    am: float  # mean of all entries


def compatibility(matrix: Sequence[Sequence[float]]) -> Compatibility:
    r"""Average compatibility and average metric of Biondi et al. (CoReS, TPAMI 2023).

    .. math::
        AC = \frac{2}{T(T-1)} \sum_{i > j} \mathbb{1}[M_{ij} > M_{jj}], \qquad
        AM = \frac{2}{T(T+1)} \sum_{i \ge j} M_{ij}

    Args:
        matrix: Matrix :math:`M_{ij}` of queries by model `i` on the gallery of model `j`; only the
            lower triangle and the diagonal are read.

    Example:
        >>> compatibility([[0.5], [0.6, 0.7], [0.4, 0.7, 0.8]])
        Compatibility(ac=0.333..., am=0.616...)
    """
    rows = [[float(value) for value in row] for row in matrix]
    size = len(rows)
    if size < 2 or any(len(row) <= i for i, row in enumerate(rows)):
        raise DataError(
            f"AC and AM need the lower triangle of a matrix of at least two models, but its rows "
            f"have {', '.join(str(len(row)) for row in rows) or 'no'} entries."
        )
    below = [(i, j) for i in range(size) for j in range(i)]
    entries = [rows[i][j] for i in range(size) for j in range(i + 1)]
    if any(entry != entry for entry in entries):
        raise DataError("AC and AM need numbers in the lower triangle, but an entry is NaN.")
    return Compatibility(
        ac=sum(rows[i][j] > rows[j][j] for i, j in below) / len(below),
        am=sum(entries) / len(entries),
    )
