"""From inner products to the terms of a softmax and their sums, in one reading."""

from typing import no_type_check

import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor

TILE = 1024  # columns looked at together


def exponents(
    product: Float[Tensor, "batch some"],
    own: Int[Tensor, " batch"],
    length: Float[Tensor, " some"],
    temperature: float,
) -> Float[Tensor, " batch"]:
    r"""Puts :math:`w_{ic} / l_c` in place of each product; returns the sums of the weights.

    .. math::
        w_{ic} = \exp\bigl((x_{ic} / l_c - 1) / \tau\bigr), \qquad w_{ic} = 0 \text{ for } c = y_i

    Its slow twin is `allclasses.weights_by_torch`.

    Args:
        product: :math:`x`, overwritten.
        own: The column of each row's own class, :math:`y`; any other number where it has none here.
        length: Of each class, :math:`l`.
        temperature: :math:`\tau`.
    """
    return exponents_in_parts(product, own, length, temperature).sum(dim=1)


def exponents_in_parts(
    product: Float[Tensor, "batch some"],
    labels: Int[Tensor, " batch"],
    length: Float[Tensor, " some"],
    temperature: float,
    *,
    first: int = 0,
) -> Float[Tensor, "batch parts"]:
    """The same, with the sums of each row left in the parts that they were made in.

    Args:
        product: As in `exponents`.
        labels: Each row's own class, without gaps in memory.
        length: As in `exponents`.
        temperature: As in `exponents`.
        first: The class of the first column.
    """
    batch, classes = product.shape
    parts = triton.cdiv(classes, TILE)
    sums = product.new_empty(batch, parts)
    exponents_kernel[(batch, parts)](
        product, product.stride(0), labels, first, length, sums, classes, 1 / temperature, tile=TILE
    )  # fmt: skip
    return sums


@triton.jit
@no_type_check
def exponents_kernel(
    product, stride, labels, first, length, sums, classes, sharpness, tile: tl.constexpr
):
    """The weights of a part of a row, and their sum."""
    row = tl.program_id(0).to(tl.int64)
    part = tl.program_id(1)
    product += row * stride
    own = tl.load(labels + row).to(tl.int64) - first
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
    """The weights of some columns, which only in the last tile are asked if they are there.

    Asked one by one, they could not be read four at a time.
    """
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
