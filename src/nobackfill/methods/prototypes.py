"""Class prototypes: the mean direction of a class, or its mean vector."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from nobackfill.core.distributed import sum_over_processes
from nobackfill.errors import DataError
from nobackfill.methods.checks import at_least_single, row_without_direction


def class_means(
    vectors: Float[Tensor, "items dim"],
    labels: Int[Tensor, " items"] | Int[np.ndarray, " items"] | Sequence[int],
    num_classes: int,
    *,
    over_processes: bool = False,
    unit_items: bool = True,
    normalize: bool = True,
) -> Float[Tensor, "classes dim"]:
    r"""Returns the mean of the unit vectors of each class, made unit again.

    .. math::
        p_c = \frac{m_c}{\lVert m_c \rVert}, \qquad
        m_c = \frac{1}{n_c} \sum_{i : y_i = c} \frac{v_i}{\lVert v_i \rVert}

    Without `normalize` the result is :math:`m_c`, which is the shorter the more a class scatters;
    without `unit_items`, :math:`m_c` is the mean of the vectors :math:`v_i` as they are.

    Args:
        vectors: Vectors of any length but zero.
        labels: Class of each vector.
        num_classes: Number of classes; each must have a vector.
        over_processes: Whether these are one process's part of the vectors. The processes then add
            their sums.
        unit_items: Whether vectors are scaled to unit length before they are averaged.
        normalize: Whether the means are scaled to unit length.

    Example:
        >>> import torch
        >>> class_means(torch.tensor([[2.0, 0.0], [0.0, 5.0]]), torch.tensor([0, 0]), 1)
        tensor([[0.7071, 0.7071]])
        >>> class_means(torch.tensor([[2.0, 0.0], [0.0, 5.0]]), [0, 0], 1, normalize=False)
        tensor([[0.5000, 0.5000]])
    """
    labels = torch.as_tensor(labels).to(vectors.device, torch.int64)
    vectors = at_least_single(vectors)
    # Check the input; a class without vectors would get no prototype.
    if finding := row_without_direction(vectors, "the vectors"):
        raise DataError(f"{finding} and has no direction. Drop these items, or embed them again.")
    if len(labels) != len(vectors):
        raise DataError(
            f"Each vector needs a label, but there are {len(labels)} labels and {len(vectors)} "
            f"vectors. Take both from the same items."
        )
    check_labels(labels, num_classes)

    # Sum the vectors of each class.
    count = labels.bincount(minlength=num_classes)
    items = F.normalize(vectors, dim=-1) if unit_items else vectors
    sums = items.new_zeros(num_classes, items.shape[1]).index_add(0, labels, items)
    length = 1.0 if unit_items else float(vectors.norm(dim=-1).mean())
    if over_processes:
        count, sums = sum_over_processes(count), sum_over_processes(sums)
    if (empty := (count == 0).nonzero().flatten()).numel():
        raise DataError(
            f"{len(empty)} of {num_classes} classes have no items, the first is class {empty[0]}: "
            f"they have no prototype. Number the classes again with "
            f"`nobackfill.data.order_classes`, or drop these classes."
        )
    if (cancelled := (sums.norm(dim=-1) < 1e-6 * length).nonzero().flatten()).numel():
        raise DataError(
            f"The vectors of class {cancelled[0]} cancel out ({len(cancelled)} such classes), so "
            f"the class has no mean direction. Check the labels."
        )
    return F.normalize(sums, dim=-1) if normalize else sums / count[:, None]


def averaging(options: Mapping[str, Any]) -> dict[str, bool]:
    """Returns the options of `class_means` that are among those of a method.

    Example:
        >>> averaging({"neighbors": 100, "normalize": False})
        {'normalize': False}
    """
    return {name: options[name] for name in ("unit_items", "normalize") if name in options}


def check_labels(labels: Int[Tensor, " items"], num_classes: int) -> None:
    """Raises if a label is not a class."""
    if len(labels) and (labels.min() < 0 or labels.max() >= num_classes):
        raise DataError(
            f"Labels must be from 0 to {num_classes - 1}, but are from {int(labels.min())} to "
            f"{int(labels.max())}. Number the classes from 0, or pass the true `num_classes`."
        )
