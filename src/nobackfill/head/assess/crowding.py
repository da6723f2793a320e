"""Crowding of the old space, and what the paper says about methods for it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch.nn.functional as F
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from nobackfill.methods.prototypes import class_means
from nobackfill.ops.nearest import nearest, rows_per_block

CROWDED = 0.6  # cosine above which ODPP moves class means apart
SHOWN = 3  # number of closest pairs


@dataclass(frozen=True)
class Crowding:
    """Crowding of the old class means."""

    classes: int  # number of classes
    near: float  # share of classes with another at a cosine above 0.6
    pairs: int  # number of pairs of classes at a cosine above 0.6
    nearest: float  # mean cosine of a class to its nearest other class
    # names and cosine of the closest pairs of classes
    closest: Sequence[tuple[str, str, float]] = ()


def crowding_of(
    old: Float[Tensor, "items dim"], classes: Int[Tensor, " items"], names: NDArray[Any]
) -> Crowding:
    """Measures how close class means are; `names` are those of the classes from 0 on."""
    number = int(classes.max()) + 1
    means = class_means(F.normalize(old, dim=1), classes, number)
    places, cosine = nearest(means, means, 1, exclude_self=True)
    return Crowding(
        number,
        (cosine > CROWDED).float().mean().item(),
        pairs_above(means, CROWDED),
        cosine.mean().item(),
        _closest(places.flatten(), cosine.flatten(), names),
    )


def pairs_above(means: Float[Tensor, "classes dim"], threshold: float) -> int:
    """Counts the pairs of unit vectors with a cosine above a threshold, block by block."""
    number = sum(
        int((block @ means.T > threshold).sum()) - int((block.square().sum(1) > threshold).sum())
        for block in means.split(rows_per_block(4 * len(means)))
    )
    return number // 2


def _closest(
    places: Int[Tensor, " classes"], cosine: Float[Tensor, " classes"], names: NDArray[Any]
) -> list[tuple[str, str, float]]:
    """Returns the closest pairs, each once."""
    pairs: dict[frozenset[int], float] = {}
    for place in cosine.argsort(descending=True).tolist():
        pairs.setdefault(frozenset((place, int(places[place]))), cosine[place].item())
        if len(pairs) == SHOWN:
            break
    return [(str(names[min(pair)]), str(names[max(pair)]), value) for pair, value in pairs.items()]


def advice(crowding: Crowding) -> str:
    """Returns how crowded the old space is, and what the paper says about methods for it.

    P_1 in its tables: with 3,997 classes NDPP leads (51.33 to 51.08; with a larger backbone 51.81
    to 51.11), with 24,393 as well (54.80 to 54.32), but not with a larger backbone (53.26 to
    53.59); with 81,313 ODPP leads (53.77 to 53.09).
    """
    closest = "; ".join(f"{a} and {b} ({cosine:.2f})" for a, b, cosine in crowding.closest)
    return (
        f"{crowding.classes:,} classes, {100 * crowding.near:.0f} % of them with another at a "
        f"cosine above {CROWDED} ({crowding.pairs:,} pairs), closest: {closest}; the paper "
        f"recommends ndpp for few classes or little time, odpp for many classes and time to spare, "
        f"and names no number: in its tables ndpp leads with 3,997 classes, odpp with 81,313, and "
        f"with 24,393 one or the other; the rows above show what was measured here"
    )
