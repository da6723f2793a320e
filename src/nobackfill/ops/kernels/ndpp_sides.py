"""Both sides of a product of old and new class means, from the new as they come, at once."""

from typing import no_type_check

import triton
import triton.language as tl
from jaxtyping import Float, Int32
from torch import Tensor

from nobackfill.ops.kernels.bf16x3 import eight_bits, write_pieces

PIECES = {"thirds": 6, "half": 1, "bfloat16": 1}  # of each kind of sides


def write_sides(
    p: Float[Tensor, "classes dim"],
    new: Float[Tensor, "classes dim"],
    q: Float[Tensor, "classes dim"],
    query: Float[Tensor, "classes pieces"],
    gallery: Float[Tensor, "classes_and_more pieces"],
    broken: Int32[Tensor, "1"],
    kind: str,
) -> None:
    r"""Writes new class means of unit length, and what is multiplied for :math:`p_c^\top q_j`.

    .. math::
        q_j = \frac{x_j}{\max(|x_j|, 10^{-12})}

    The slow twin of `q` is `F.normalize`, whose length is that of single precision, too: a row of
    finite numbers whose squares overflow, as from :math:`2 \cdot 10^{19}` on, is infinitely long
    and becomes 0.

    The sides are `q` and `p` as "thirds", six pieces of bfloat16 that make up single precision, see
    `nobackfill.ops.bf16x3`, whose `query_side` and `gallery_side` are the slow twins; or rounded,
    to "bfloat16" or to "half", float16, of whose range unit vectors use the part from -1 to 1.

    Args:
        p: Old class means, of unit length. These, `new` and all that is written have rows one
            after the other.
        new: New class means, :math:`x`, of any length.
        q: Written, in single precision.
        query: Written: the side of `p`. Each piece is as wide as `dim` or wider; what is more
            becomes 0.
        gallery: Written: the side of `q`. Rows that are more become 0.
        broken: Becomes 1 if a number of `new` is NaN or infinite; is left alone if not. All else
            that is written then means nothing.
        kind: What the sides are made of, see above.
    """
    width = query.shape[1] // PIECES[kind]
    sides_kernel[(len(gallery),)](
        p, new, q, query, gallery, broken, len(p), p.shape[1], width,
        kind=kind, block=triton.next_power_of_2(width),
    )  # fmt: skip


@triton.jit
@no_type_check
def sides_kernel(
    p, new, q, query, gallery, broken, rows, dim, width, kind: tl.constexpr, block: tl.constexpr
):
    """One row of each."""
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, block)
    there = at < tl.where(row < rows, dim, 0)
    value = tl.load(new + row * dim + at, mask=there, other=0.0)
    finite = (tl.abs(value) < float("inf")).to(tl.int32)  # each: a sum of finite may be infinite
    tl.store(broken, 1, mask=tl.min(finite, axis=0) == 0)
    length = tl.sqrt(tl.sum(value * value, axis=0))
    value = value / tl.maximum(length, 1e-12)
    tl.store(q + row * dim + at, value, mask=there)
    write_side(gallery, row, value, width, at, at < width, kind, True)
    value = tl.load(p + row * dim + at, mask=there, other=0.0)
    write_side(query, row, value, width, at, at < tl.where(row < rows, width, 0), kind, False)


@triton.jit
@no_type_check
def write_side(
    out, row, value, width, at, inside, kind: tl.constexpr, of_gallery: tl.constexpr
):  # fmt: skip
    """A row of one side."""
    if kind == "thirds":
        write_pieces(out + row * 6 * width + at, value, width, inside, of_gallery)
    elif kind == "bfloat16":
        tl.store(out + row * width + at, eight_bits(value).to(tl.bfloat16), mask=inside)
    else:
        tl.store(out + row * width + at, value.to(tl.float16), mask=inside)
