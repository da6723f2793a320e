"""Rows made unit in one launch, in the precision that products want."""

from typing import no_type_check

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Float16
from torch import Tensor

MOST = 8192  # numbers of a row, which a program holds at once
HELD = 1024  # numbers of all rows of a program, if these are more than one


def fits(x: Float[Tensor, "rows dim"]) -> bool:
    """Whether `unit_rows` takes such rows."""
    return x.shape[1] <= MOST


def width_for(dim: int) -> int:
    """How many numbers a row of halves has: a power of 2, and 16 at least, as for tensor cores."""
    return max(16, 1 << (dim - 1).bit_length())


def unit_rows(x: Float[Tensor, "rows dim"]) -> Float[Tensor, "rows dim"]:
    r"""Each row over its length, in single precision.

    .. math::
        \frac{x_i}{\max(|x_i|, 10^{-12})}

    The slow twin is `F.normalize`.
    """
    rows, dim = x.shape
    out = x.new_empty(rows, dim, dtype=torch.float32)
    block = width_for(dim)
    many = rows_at_once(block)
    unit_rows_kernel[(triton.cdiv(rows, many),)](
        x, *x.stride(), out, rows, dim, block=block, many=many, num_warps=4 if many > 1 else 8
    )
    return out


def unit_halves(
    x: Float[Tensor, "rows dim"], y: Float[Tensor, "others dim"]
) -> tuple[Float16[Tensor, "rows width"], Float16[Tensor, "others width"]]:
    """The same of two matrices, each row ending in zeros up to the width of `width_for`.

    The slow twin is `F.normalize`, then `half` and `F.pad`.
    """
    dim = x.shape[1]
    width = width_for(dim)
    unit_x, unit_y = (some.new_empty(len(some), width, dtype=torch.float16) for some in (x, y))
    many = rows_at_once(width)
    programs = triton.cdiv(len(x), many)
    unit_halves_kernel[(programs + triton.cdiv(len(y), many),)](
        x, *x.stride(), unit_x, len(x), programs, y, *y.stride(), unit_y, len(y), dim,
        width=width, many=many, num_warps=4,
    )  # fmt: skip
    return unit_x, unit_y


def rows_at_once(width: int) -> int:
    """How many rows a program makes unit: as many as are `HELD`."""
    return max(1, HELD // width)


@triton.jit
@no_type_check
def unit_rows_kernel(
    x, x_row, x_column, out, rows, dim, block: tl.constexpr, many: tl.constexpr
):  # fmt: skip
    """Some rows of `unit_rows`."""
    row = tl.program_id(0).to(tl.int64) * many + tl.arange(0, many)
    column = tl.arange(0, block)
    inside = (row < rows)[:, None] & (column < dim)[None, :]
    value = unit(x, x_row, x_column, row, column, inside)
    tl.store(out + row[:, None] * dim + column[None, :], value, mask=inside)


@triton.jit
@no_type_check
def unit_halves_kernel(
    x, x_row, x_column, unit_x, rows, programs, y, y_row, y_column, unit_y, others, dim,
    width: tl.constexpr, many: tl.constexpr,
):  # fmt: skip
    """Some rows of `unit_halves`: the first programs take the first matrix."""
    program = tl.program_id(0)
    if program < programs:
        write_halves(x, x_row, x_column, unit_x, rows, dim, program, width, many)
    else:
        write_halves(y, y_row, y_column, unit_y, others, dim, program - programs, width, many)


@triton.jit
@no_type_check
def write_halves(
    x, x_row, x_column, out, rows, dim, number, width: tl.constexpr, many: tl.constexpr
):  # fmt: skip
    """Those of one matrix."""
    row = number.to(tl.int64) * many + tl.arange(0, many)
    column = tl.arange(0, width)
    there = (row < rows)[:, None]
    value = unit(x, x_row, x_column, row, column, there & (column < dim)[None, :])
    tl.store(out + row[:, None] * width + column[None, :], value.to(tl.float16), mask=there)


@triton.jit
@no_type_check
def unit(x, x_row, x_column, row, column, inside):
    """Rows over their lengths; 0 where nothing is inside."""
    place = x + row[:, None] * x_row + column[None, :].to(tl.int64) * x_column
    value = tl.load(place, mask=inside, other=0.0).to(tl.float32)
    length = tl.sqrt(tl.sum(value * value, axis=1))
    return value / tl.maximum(length, 1e-12)[:, None]
