"""Which products are above a threshold, as a mask that tensor cores can sum with."""

from typing import no_type_check

import torch
import triton
import triton.language as tl
from jaxtyping import BFloat16, Float
from torch import Tensor

ALIGNED = 16  # numbers; rows of the mask start where tensor cores load fastest
TILE = 1024  # columns loaded together
TILES = 4  # per program


def above(
    product: Float[Tensor, "rows columns"], threshold: float, *, own: int, later_only: bool
) -> BFloat16[Tensor, "rows columns"]:
    r"""1 where :math:`x_{ij} > \theta`, else 0, in bfloat16, in one pass over memory.

    The equivalent in torch is `methods.perturbation.crowding.above`, which explains the
    parameters.
    """
    rows, columns = product.shape
    mask = product.new_empty(rows, columns + -columns % ALIGNED, dtype=torch.bfloat16)
    above_kernel[(rows, triton.cdiv(columns, TILE * TILES))](
        product, product.stride(0), mask, mask.stride(0), columns, threshold, own,
        later_only=later_only, tile=TILE, tiles=TILES,
    )  # fmt: skip
    return mask[:, :columns]


@triton.jit
@no_type_check
def above_kernel(
    product, stride, mask, mask_stride, columns, threshold, own,
    later_only: tl.constexpr, tile: tl.constexpr, tiles: tl.constexpr,
):  # fmt: skip
    """The mask of a part of a row."""
    row = tl.program_id(0).to(tl.int64)
    mine = own + row
    for step in range(tiles):
        column = (tl.program_id(1) * tiles + step) * tile + tl.arange(0, tile)
        inside = column < columns
        value = tl.load(product + row * stride + column, mask=inside, other=0.0)
        other = column > mine if later_only else column != mine
        near = ((value > threshold) & other).to(tl.float32).to(tl.bfloat16)
        tl.store(mask + row * mask_stride + column, near, mask=inside)
