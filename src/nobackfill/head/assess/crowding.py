"""How crowded the old space is, and what the paper would advise for that."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch.nn.functional as F
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from nobackfill.methods.prototypes import class_means
from nobackfill.ops.nearest import nearest, rows_per_block

CROWDED = 0.6  # the cosine from which on ODPP moves class means apart
MANY = 5000  # classes, from which on the paper's ODPP is ahead of its NDPP
SHOWN = 3  # pairs of classes


@dataclass(frozen=True)
class Crowding:
    """How crowded the old class means are.

    Attributes:
        classes: How many there are.
        near: The share of classes with another at a cosine above 0.6.
        pairs: How many pairs of classes are at such a cosine.
        nearest: The mean cosine of a class to its nearest other.
        closest: The pairs of classes that are closest, by name, and their cosine.
    """

    classes: int
    near: float
    pairs: int
    nearest: float
    closest: Sequence[tuple[str, str, float]] = ()


def crowding_of(
    old: Float[Tensor, "items dim"], classes: Int[Tensor, " items"], names: NDArray[Any]
) -> Crowding:
    """How near class means are to each other.

    Args:
        old: Old vectors.
        classes: Theirs, from 0 on.
        names: What to call each class.
    """
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
    """How many pairs of unit vectors have a cosine above a threshold; in blocks."""
    found = sum(
        int((block @ means.T > threshold).sum()) - int((block.square().sum(1) > threshold).sum())
        for block in means.split(rows_per_block(4 * len(means)))
    )
    return found // 2


def _closest(
    places: Int[Tensor, " classes"], cosine: Float[Tensor, " classes"], names: NDArray[Any]
) -> list[tuple[str, str, float]]:
    """The nearest pairs, each once."""
    found: dict[frozenset[int], float] = {}
    for place in cosine.argsort(descending=True).tolist():
        found.setdefault(frozenset((place, int(places[place]))), cosine[place].item())
        if len(found) == SHOWN:
            break
    return [(str(names[min(pair)]), str(names[max(pair)]), value) for pair, value in found.items()]


def advice(crowding: Crowding) -> str:
    """What the paper would advise, and what it rests on."""
    favoured = "odpp" if crowding.classes >= MANY else "ndpp"
    closest = "; ".join(
        f"{one} and {other} ({value:.2f})" for one, other, value in crowding.closest
    )
    return (
        f"{crowding.classes:,} classes, {100 * crowding.near:.0f} % of them with another at a "
        f"cosine above {CROWDED} ({crowding.pairs:,} pairs), the closest being {closest}: the "
        f"paper would choose {favoured} (few classes: ndpp, many: odpp); what was measured here "
        f"are the rows above"
    )
