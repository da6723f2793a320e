"""Softmax terms and their sums from inner products, in one pass over memory."""

from typing import no_type_check

import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor

TILE = 1024  # columns per program


def exponents(
    product: Float[Tensor, "batch block"],
    own: Int[Tensor, " batch"],
    length: Float[Tensor, " block"],
    temperature: float,
) -> Float[Tensor, " batch"]:
    r"""Replaces each product by :math:`w_{ic} / l_c` and returns the sums of the weights.

    .. math::
        w_{ic} = \exp\bigl((x_{ic} / l_c - 1) / \tau\bigr), \qquad w_{ic} = 0 \text{ for } c = y_i

    The own class :math:`y` of a row may lie outside the block of columns, and :math:`l` is the
    length of a class vector. The equivalent in torch is
    `ops.softmax_contrast.weights_by_torch`.
    """
    batch, classes = product.shape
    parts = triton.cdiv(classes, TILE)
    sums = product.new_empty(batch, parts)
    exponents_kernel[(batch, parts)](
        product, product.stride(0), own, length, sums, classes, 1 / temperature, tile=TILE
    )  # fmt: skip
    return sums.sum(dim=1)


@triton.jit
@no_type_check
def exponents_kernel(
    product, stride, own_columns, length, sums, classes, sharpness, tile: tl.constexpr
):
    """Weights of one tile of a row, and their sum."""
    row = tl.program_id(0).to(tl.int64)
    part = tl.program_id(1)
    product += row * stride
    own = tl.load(own_columns + row)
    column = part * tile + tl.arange(0, tile)
    if (part + 1) * tile <= classes:
        weight = weights_of_a_tile(product, length, column, classes, own, sharpness, False)
    else:
        weight = weights_of_a_tile(product, length, column, classes, own, sharpness, True)
    tl.store(sums + row * tl.num_programs(1) + part, tl.sum(weight, axis=0))


@triton.jit
@no_type_check
def weights_of_a_tile(
    product, length, column, classes, own, sharpness, last: tl.constexpr
):  # fmt: skip
    """Weights of a tile of columns. Only the last tile needs a mask; the others load vectorised."""
    if last:
        inside = column < classes
        of_class = tl.load(length + column, mask=inside, other=1.0)
        x = tl.load(product + column, mask=inside, other=0.0)
    else:
        of_class = tl.load(length + column)
        x = tl.load(product + column)
    scale = 1.0 / tl.maximum(of_class, 1e-12)
    weight = tl.exp((x * scale - 1.0) * sharpness)
    weight = tl.where(column != own, weight, 0.0)
    if last:
        weight = tl.where(inside, weight, 0.0)
        tl.store(product + column, weight * scale, mask=inside)
    else:
        tl.store(product + column, weight * scale)
    return weight
