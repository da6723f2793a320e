"""Which products are above a threshold, as ones and zeros that tensor cores can sum with."""

from typing import no_type_check

import torch
import triton
import triton.language as tl
from jaxtyping import BFloat16, Float
from torch import Tensor

TILE = 1024  # columns looked at together
TILES = 4  # of one program


def above(
    product: Float[Tensor, "rows columns"], threshold: float, *, own: int, later_only: bool
) -> BFloat16[Tensor, "rows columns"]:
    r"""1 where :math:`x_{ij} > \theta`, else 0; in bfloat16, whose ones and zeros are exact.

    Args:
        product: :math:`x`.
        threshold: :math:`\theta`.
        own: The column of row 0 itself, where it is 0; that of row `i` is `own + i`.
        later_only: Whether columns before a row's own are 0, too.
    """
    rows, columns = product.shape
    unused = -columns % 8  # rows begin where tensor cores can load them
    mask = torch.empty(rows, columns + unused, dtype=torch.bfloat16, device=product.device)
    above_kernel[(rows, triton.cdiv(columns, TILE * TILES))](
        product, product.stride(0), mask, columns + unused, columns, threshold, own,
        later_only=later_only, tile=TILE, tiles=TILES,
    )  # fmt: skip
    return mask[:, :columns]


@triton.jit
@no_type_check
def above_kernel(
    product, stride, mask, mask_stride, columns, threshold, own,
    later_only: tl.constexpr, tile: tl.constexpr, tiles: tl.constexpr,
):  # fmt: skip
    """A part of a row."""
    row = tl.program_id(0).to(tl.int64)
    mine = own + row
    for step in range(tiles):
        column = (tl.program_id(1) * tiles + step) * tile + tl.arange(0, tile)
        inside = column < columns
        value = tl.load(product + row * stride + column, mask=inside, other=0.0)
        other = column > mine if later_only else column != mine
        one = ((value > threshold) & other).to(tl.float32).to(tl.bfloat16)
        tl.store(mask + row * mask_stride + column, one, mask=inside)
