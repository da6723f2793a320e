"""Numbers of single precision as three of bfloat16 each, laid out for one product."""

from typing import no_type_check

import triton
import triton.language as tl
from jaxtyping import BFloat16, Float
from torch import Tensor


def write_thirds(
    x: Float[Tensor, "rows dim"], out: BFloat16[Tensor, "rows_and_more six_times"], *, gallery: bool
) -> None:
    """Writes one side of a product, see `nobackfill.ops.bf16x3`, in one reading of `x`.

    Args:
        x: In single precision, rows one after the other.
        out: Six pieces a row, each as wide as `dim` or wider, and rows, as many or more; what is
            more becomes 0.
        gallery: Which side.
    """
    width = out.shape[1] // 6
    thirds_kernel[(len(out),)](
        x, out, len(x), x.shape[1], width, gallery=gallery, block=triton.next_power_of_2(width)
    )


@triton.jit
@no_type_check
def eight_bits(value):
    """The nearest number of bfloat16, to even where two are; as a float32."""
    bits = value.to(tl.int32, bitcast=True)
    bits += 0x7FFF + ((bits >> 16) & 1)
    return (bits & -65536).to(tl.float32, bitcast=True)


@triton.jit
@no_type_check
def thirds_kernel(x, out, rows, dim, width, gallery: tl.constexpr, block: tl.constexpr):
    """The six pieces of a row."""
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, block)
    there = tl.where(row < rows, dim, 0)
    value = tl.load(x + row * dim + at, mask=at < there, other=0.0)
    write_pieces(out + row * 6 * width + at, value, width, at < width, gallery)


@triton.jit
@no_type_check
def write_pieces(out, value, width, inside, gallery: tl.constexpr):
    """The six pieces of some numbers, each piece so wide, in the order of one side."""
    high = eight_bits(value)
    middle = eight_bits(value - high)
    low = eight_bits(value - high - middle)
    if gallery:
        write_six(out, width, inside, high, low, middle, high, middle, high)
    else:
        write_six(out, width, inside, low, high, middle, middle, high, high)


@triton.jit
@no_type_check
def write_six(out, width, inside, first, second, third, fourth, fifth, sixth):
    """Pieces of a row, one after the other."""
    tl.store(out, first.to(tl.bfloat16), mask=inside)
    tl.store(out + width, second.to(tl.bfloat16), mask=inside)
    tl.store(out + 2 * width, third.to(tl.bfloat16), mask=inside)
    tl.store(out + 3 * width, fourth.to(tl.bfloat16), mask=inside)
    tl.store(out + 4 * width, fifth.to(tl.bfloat16), mask=inside)
    tl.store(out + 5 * width, sixth.to(tl.bfloat16), mask=inside)
