"""One line on a perturbation: its settings, and how far prototypes have moved."""

import inspect
import math

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn


def summary(
    module: nn.Module, old: Float[Tensor, "classes dim"], moved: Float[Tensor, "classes dim"]
) -> str:
    """Returns the number of prototypes, changed settings, and the mean angle, as text."""
    classes, dim = old.shape
    changed = [
        f"{name}={getattr(module, name)!r}"
        for name, argument in inspect.signature(type(module)).parameters.items()
        if isinstance(argument.default, bool | int | float | str)
        and getattr(module, name, argument.default) != argument.default
    ]
    angle = f"moved by {mean_angle(old, moved):.2f}° on average"
    return ", ".join([f"{classes:,} prototypes of {dim} dimensions", *changed, angle])


def mean_angle(old: Float[Tensor, "classes dim"], moved: Float[Tensor, "classes dim"]) -> float:
    r"""Returns the mean angle between two positions of each prototype, in degrees.

    .. math::
        \frac{1}{C} \sum_c \frac{180}{\pi} \cdot 2 \arctan
        \frac{\lVert \tilde p_c - p_c \rVert}{\lVert \tilde p_c + p_c \rVert}

    with both of unit length; small angles lose no digits.

    Example:
        >>> import torch
        >>> round(mean_angle(torch.eye(2), torch.tensor([[0.0, 1.0], [0.0, 2.0]])), 4)
        45.0
    """
    p, q = F.normalize(old.double(), dim=1), F.normalize(moved.double(), dim=1)
    angle = 2 * (q - p).norm(dim=1).atan2((q + p).norm(dim=1))
    return math.degrees(angle.mean().item())
