"""Gradients of the hinge on pairs of prototypes that are too close: the arithmetic of ODPP."""

import torch
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
    r"""The gradient in `x` of the summed hinge; `others` count as constants.

    .. math::
        \frac{\partial}{\partial x_c} \sum_{c} \sum_{j \ne c} [x_c^\top o_j - \theta]_+
        = \sum_{j \ne c} \mathbb{1}[x_c^\top o_j > \theta]\; o_j

    If `others` is `x` itself, double the result: each pair has a hinge from both sides. One product
    then serves both rows. Products exist for one block of rows at a time.

    Example:
        >>> x = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0]])
        >>> crowding_gradient(x, x, threshold=0.7)
        tensor([[0.8000, 0.6000],
                [1.0000, 0.0000],
                [0.0000, 0.0000]])
    """
    block = block or (4096 if x.is_cuda else 1024)
    among = others is x  # a block of rows is then compared with itself and what follows
    gradient = torch.zeros_like(x)
    products = empty_products(x, min(block, len(x)), len(others))
    for start in range(0, len(x), block):
        rows, columns = x[start : start + block], others[start:] if among else others
        product = inner_products(rows, columns, products[: len(rows), : len(columns)])
        too_near = product.gt_(threshold)  # 1 or 0
        if among:
            too_near[:, : len(rows)].triu_(1)  # within the block, each pair once
        else:
            too_near.diagonal(offset=start).zero_()  # a class is not its own neighbour
        sums_of_rows(too_near, columns, gradient[start : start + block])
        if among:
            gradient[start:].addmm_(too_near.T, rows)
    return gradient


def pair_gradient(
    x: Float[Tensor, "classes dim"],
    others: Float[Tensor, "classes dim"],
    rows: Int[Tensor, " pairs"],
    other_rows: Int[Tensor, " pairs"],
    threshold: float,
) -> Float[Tensor, "classes dim"]:
    """The same gradient over some pairs: rows of `x` and rows of `others`."""
    neighbor = others[other_rows]
    too_near = (x[rows] * neighbor).sum(dim=1, keepdim=True) > threshold
    return torch.zeros_like(x).index_add(0, rows, neighbor * too_near)
