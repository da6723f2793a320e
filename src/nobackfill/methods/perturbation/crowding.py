"""How crowded prototypes are, and which way is out: the arithmetic of ODPP."""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from nobackfill.ops.matmul import empty_products, inner_products, sums_of_rows


def crowding_gradient(
    x: Float[Tensor, "classes dim"],
    others: Float[Tensor, "classes dim"],
    threshold: float,
    *,
    block: int | None = None,
) -> Float[Tensor, "classes dim"]:
    r"""The gradient in `x` of the summed hinge, as if `others` did not move with `x`.

    .. math::
        \frac{\partial}{\partial x_c} \sum_{c} \sum_{j \ne c} [x_c^\top o_j - \theta]_+
        = \sum_{j \ne c} \mathbb{1}[x_c^\top o_j > \theta]\; o_j

    Where the `others` are `x` itself, every pair is met from both sides: take it twice. Then each
    product is computed once, and serves both rows.

    A block of rows is compared at a time, so that no classes x classes tensor ever exists.

    Example:
        >>> x = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0]])
        >>> crowding_gradient(x, x, threshold=0.7)
        tensor([[0.8000, 0.6000],
                [1.0000, 0.0000],
                [0.0000, 0.0000]])
    """
    block = block or (4096 if x.is_cuda else 1024)
    if others is x:
        return _among_themselves(x, threshold, block)
    gradient = torch.zeros_like(x)
    products = empty_products(x, min(block, len(x)), len(others))
    for start in range(0, len(x), block):
        rows = x[start : start + block]
        product = inner_products(rows, others, products[: len(rows)])
        too_near = product.gt_(threshold)  # 1 where it is, 0 where not
        too_near.diagonal(offset=start).zero_()  # a class is not its own neighbour
        sums_of_rows(too_near, others, gradient[start : start + block])
    return gradient


def _among_themselves(
    x: Float[Tensor, "classes dim"], threshold: float, block: int
) -> Float[Tensor, "classes dim"]:
    """The same for `x` and itself: a block of rows meets itself and what comes after it."""
    gradient = torch.zeros_like(x)
    products = empty_products(x, min(block, len(x)), len(x))
    for start in range(0, len(x), block):
        rows, after = x[start : start + block], x[start:]
        product = inner_products(rows, after, products[: len(rows), : len(after)])
        too_near = product.gt_(threshold)
        too_near[:, : len(rows)].triu_(1)  # of a pair within the block, the first meets the second
        sums_of_rows(too_near, after, gradient[start : start + block])
        gradient[start:].addmm_(too_near.T, rows)
    return gradient


def pair_gradient(
    x: Float[Tensor, "classes dim"],
    others: Float[Tensor, "classes dim"],
    rows: Int[Tensor, " pairs"],
    other_rows: Int[Tensor, " pairs"],
    threshold: float,
) -> Float[Tensor, "classes dim"]:
    r"""The gradient in `x` of the hinge summed over the given pairs, `others` held fixed.

    .. math::
        \frac{\partial}{\partial x_c} \sum_{(c, j)} [x_c^\top o_j - \theta]_+
        = \sum_{(c, j)} \mathbb{1}[x_c^\top o_j > \theta]\; o_j
    """
    neighbor = others[other_rows]
    too_near = (x[rows] * neighbor).sum(dim=1, keepdim=True) > threshold
    return torch.zeros_like(x).index_add(0, rows, neighbor * too_near)


def project_out_length(
    gradient: Float[Tensor, "classes dim"], x: Float[Tensor, "classes dim"]
) -> Float[Tensor, "classes dim"]:
    r"""Turns a gradient in the unit vectors :math:`u = x / \lVert x \rVert` into one in `x`.

    .. math::
        g_x = \frac{g_u - (g_u^\top u)\, u}{\lVert x \rVert}
    """
    u = F.normalize(x, dim=-1)
    along = (gradient * u).sum(dim=-1, keepdim=True)
    length: Tensor = x.norm(dim=-1, keepdim=True)
    return (gradient - along * u) / length
