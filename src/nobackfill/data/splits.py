"""The classes that each model of an upgrade is trained on, and their labels."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from jaxtyping import Int64
from torch import Tensor

from nobackfill.errors import ConfigError

TOLERANCE = 1e-6  # 0.29 * 100 is 28.999999999999996 in floating point, and means 29


@dataclass(frozen=True, eq=False)
class ClassOrder:
    """Classes numbered so that those of earlier models have the first labels.

    The model of step `s` knows exactly the labels below `counts[s]`. Classes of no step have the
    last labels.

    Attributes:
        classes: Original class of each label.
        label_of: Label of each original class.
        counts: Number of classes that each step knows, earliest first.
    """

    classes: Int64[Tensor, " classes"]
    label_of: Int64[Tensor, " classes"]
    counts: tuple[int, ...]


def order_classes(
    num_classes: int, shares: Sequence[float | int], *, generator: torch.Generator
) -> ClassOrder:
    """Draws the classes of each step at random, and numbers them as `number_classes` does.

    Args:
        num_classes: Number of classes; their original ids are `0 .. num_classes - 1`.
        shares: Share of the classes that each step knows, ascending, such as `(0.3, 1.0)`.
        generator: Generator of the permutation of the classes.

    Example:
        >>> order = order_classes(10, (0.3, 1.0), generator=torch.Generator().manual_seed(0))
        >>> order.counts
        (3, 10)
    """
    class_counts(num_classes, shares)  # raises before anything is drawn
    return number_classes(torch.randperm(num_classes, generator=generator), shares)


def number_classes(
    permutation: Int64[Tensor, " classes"], shares: Sequence[float | int]
) -> ClassOrder:
    """Numbers the classes by the step that adds them, and by ascending id within a step.

    Args:
        permutation: All class ids; every step knows the beginning of this list, up to its share.
        shares: Share of the classes that each step knows, ascending.

    Example:
        >>> order = number_classes(torch.tensor([3, 1, 0, 2]), (0.5, 1.0))
        >>> order.classes, order.label_of
        (tensor([1, 3, 0, 2]), tensor([2, 0, 3, 1]))
    """
    counts = class_counts(len(permutation), shares)
    classes = torch.cat([added.sort().values for added in permutation.tensor_split(counts)])
    return ClassOrder(classes=classes, label_of=classes.argsort(), counts=counts)


def draw_parts(
    classes: Int64[Tensor, " classes"], ends: Sequence[int], *, seed: int
) -> tuple[Int64[Tensor, " part"], ...]:
    """Shuffles classes and divides them into parts that end at these positions, and a last part.

    Example:
        >>> [len(part) for part in draw_parts(torch.arange(10), [6, 8], seed=0)]
        [6, 2, 2]
    """
    order = classes[torch.randperm(len(classes), generator=torch.Generator().manual_seed(seed))]
    return order.tensor_split(list(ends))


def class_counts(num_classes: int, shares: Sequence[float | int]) -> tuple[int, ...]:
    """Returns the number of classes of each share, rounded down.

    Example:
        >>> class_counts(100, (0.29, 1.0))
        (29, 100)
    """
    shares = tuple(shares)
    inside = all(0 < share <= 1 for share in shares)
    ascending = all(earlier < later for earlier, later in pairwise(shares))
    if not (shares and inside and ascending):
        raise ConfigError(
            f"shares must ascend and lie in (0, 1], but they are {shares}. Write the share of the "
            "classes that each model knows, the oldest first, such as (0.3, 1.0)."
        )
    counts = tuple(int(share * num_classes + TOLERANCE) for share in shares)
    if counts[0] < 2:
        raise ConfigError(
            f"the first model needs at least two classes, but a share of {shares[0]} of "
            f"{num_classes} classes is {counts[0]}. Take a larger first share, or more classes."
        )
    if len(set(counts)) < len(counts):
        raise ConfigError(
            f"every share must add classes, but of {num_classes} classes {shares} are {counts}. "
            "Take shares further apart, or more classes."
        )
    return counts
