"""From inner products to the terms of a softmax and their sums, in one reading."""

from typing import no_type_check

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor

TILE = 1024  # columns looked at together
TILES = 16  # of one program


def exponents(
    product: Float[Tensor, "batch some"],
    own: Int[Tensor, " batch"],
    length: Float[Tensor, " some"],
    temperature: float,
) -> Float[Tensor, " batch"]:
    r"""Puts :math:`w_{ic} / l_c` in place of each product; returns the sums of the weights.

    .. math::
        w_{ic} = \exp\bigl((x_{ic} / l_c - 1) / \tau\bigr), \qquad w_{ic} = 0 \text{ for } c = y_i

    Args:
        product: :math:`x`, overwritten.
        own: The column of each row's own class, :math:`y`; any other number where it has none here.
        length: Of each class, :math:`l`.
        temperature: :math:`\tau`.
    """
    batch, classes = product.shape
    parts = triton.cdiv(classes, TILE * TILES)
    sums = torch.empty(batch, parts, device=product.device)
    exponents_kernel[(parts, batch)](
        product, product.stride(0), own, length, sums, classes, 1 / temperature,
        tile=TILE, tiles=TILES,
    )  # fmt: skip
    return sums.sum(dim=1)


@triton.jit
@no_type_check
def exponents_kernel(
    product, stride, own, length, sums, classes, sharpness,
    tile: tl.constexpr, tiles: tl.constexpr,
):  # fmt: skip
    """The weights of a part of a row, and their sum."""
    row = tl.program_id(1).to(tl.int64)
    part = tl.program_id(0)
    product += row * stride
    own_class = tl.load(own + row)
    total = tl.zeros((tile,), tl.float32)
    for step in range(tiles):
        column = (part * tiles + step) * tile + tl.arange(0, tile)
        inside = column < classes
        scale = 1.0 / tl.maximum(tl.load(length + column, mask=inside, other=1.0), 1e-12)
        x = tl.load(product + column, mask=inside, other=0.0)
        weight = tl.exp((x * scale - 1.0) * sharpness)
        weight = tl.where(inside & (column != own_class), weight, 0.0)
        tl.store(product + column, weight * scale, mask=inside)
        total += weight
    tl.store(sums + row * tl.num_programs(0) + part, tl.sum(total, axis=0))
