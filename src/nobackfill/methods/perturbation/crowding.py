"""Gradients of the hinge on pairs of prototypes that are too close: the arithmetic of ODPP."""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from nobackfill.ops.bf16x3 import LEAST_PRODUCTS, sums_in_float32
from nobackfill.ops.kernels import usable
from nobackfill.ops.matmul import (
    ALIGNED,
    masked_sums,
    products_with,
    sums_of_rows,
    three_parts,
)


def crowding_gradient(
    x: Float[Tensor, "classes dim"],
    others: Float[Tensor, "classes dim"],
    threshold: float,
    *,
    block: int | None = None,
) -> Float[Tensor, "classes dim"]:
    r"""Returns the gradient in `x` of the summed hinge; `others` count as constants.

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
    classes, halves = len(x), masks_in_halves(x)

    # Rows of zeros, which push no class, fill up the number of classes for tensor cores.
    if halves:
        others = F.pad(others, (0, 0, 0, -classes % ALIGNED))
        x = others if among else x
    sums = masked_sums if halves else sums_of_rows
    values = three_parts(others) if halves else others

    products = products_with(others, block, len(x))
    gradient = torch.zeros_like(x)
    for start in range(0, len(x), block):
        rows = slice(start, start + block)
        first = start if among else 0  # of the columns
        product = products(x[rows], first)
        too_near = above(product, threshold, own=start - first, later_only=among, halves=halves)
        sums(too_near, values[first:], gradient[rows])
        if among:
            sums(too_near.T, values[rows], gradient[first:])
    return gradient[:classes]


def masks_in_halves(x: Float[Tensor, "classes dim"]) -> bool:
    """Whether sums of classes run on tensor cores, by masks of bfloat16: many float32 classes."""
    return sums_in_float32(x) and x.dtype == torch.float32 and len(x) * x.numel() >= LEAST_PRODUCTS


def above(
    product: Float[Tensor, "rows columns"],
    threshold: float,
    *,
    own: int,
    later_only: bool,
    halves: bool = False,
) -> Float[Tensor, "rows columns"]:
    r"""1 where :math:`x_{ij} > \theta`, else 0.

    Args:
        product: Inner products :math:`x`; overwritten unless `halves`.
        threshold: Threshold :math:`\theta`.
        own: Column of the first row's own class, which gets 0; row `i` has column `own + i`.
        later_only: Whether the columns before a row's own get 0, too.
        halves: Whether the mask is in bfloat16, with rows as long as those of `product` in memory.
    """
    mask = product
    if halves and usable(product):
        from nobackfill.ops.kernels import threshold_mask

        return threshold_mask.above(product, threshold, own=own, later_only=later_only)
    if halves:
        rows, columns = product.shape
        mask = product.new_empty(rows, columns + -columns % ALIGNED, dtype=torch.bfloat16)
        mask = mask[:, :columns]
    torch.gt(product, threshold, out=mask)
    if later_only:
        mask[:, : own + len(mask)].triu_(own + 1)
    else:
        mask.diagonal(offset=own).zero_()
    return mask


def pair_gradient(
    x: Float[Tensor, "classes dim"],
    others: Float[Tensor, "other_classes dim"],
    rows: Int[Tensor, " pairs"],
    other_rows: Int[Tensor, " pairs"],
    threshold: float,
) -> Float[Tensor, "classes dim"]:
    """Returns the same gradient over some pairs: rows of `x` and rows of `others`."""
    neighbor = others[other_rows]
    too_near = (x[rows] * neighbor).sum(dim=1, keepdim=True) > threshold
    return torch.zeros_like(x).index_add(0, rows, neighbor * too_near)
