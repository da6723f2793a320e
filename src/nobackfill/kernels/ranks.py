"""Ranks of a few items in long rows, counted in one reading of the scores."""

from typing import no_type_check

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor

DEEP, LANES = 4, 128  # columns of a piece; each of 32 threads holds 4 times 4 of them
CHUNK = 4 * DEEP * LANES  # columns held at once, in four pieces
CHUNKS = 8  # of one program
MOST = 1024  # items of a row; for more, sort it
LONGEST = 65_535 * CHUNK * CHUNKS  # columns: programs that a GPU takes along the second axis


def fits(score: Float[Tensor, "query gallery"], longest: int) -> bool:
    """Whether `ranks` takes such a block: single precision, columns side by side."""
    plain = score.dtype == torch.float32 and score.stride(1) == 1
    return plain and score.shape[1] <= LONGEST and longest <= MOST


def ranks(
    score: Float[Tensor, "query gallery"],
    row: Int[Tensor, " pairs"],
    item: Int[Tensor, " pairs"],
    start: Int[Tensor, " query_and_one"],
) -> Int[Tensor, " pairs"]:
    r"""Rank of each item in its row, ties by column.

    .. math::
        \mathrm{rank}(p) = 1 + |\{j : s_j > s_p\}| + |\{j < p : s_j = s_p\}|

    A program holds some columns of a row and compares them with one item after the other: two
    instructions a score. Before the item's own chunk of columns, equal scores count; there, what is
    larger than the next smaller number is counted. After it they do not. Within it, they are
    looked at once more. Pieces whose largest score is too small are passed over.

    Args:
        score: Higher is better; minus infinity is before nothing.
        row: Of each item, ascending, on the device of the scores.
        item: Its column.
        start: Where the items of each row begin.
    """
    queries, gallery = score.shape
    wanted = score[row, item]
    lower = wanted.nextafter(wanted.new_full((), -torch.inf))  # filled there: nothing is sent
    column = item.to(torch.int32)
    counts = torch.zeros(len(row), dtype=torch.int32, device=score.device)
    grid = (queries, triton.cdiv(gallery, CHUNK * CHUNKS))  # a GPU takes most along the first
    count_kernel[grid](
        score, score.stride(0), gallery, start, wanted, lower, column, counts,
        deep=DEEP, lanes=LANES, chunks=CHUNKS, num_warps=1,
    )  # fmt: skip
    equal_kernel[(len(row),)](
        score, score.stride(0), row, column, wanted, counts,
        chunk=CHUNK, tile=DEEP * LANES, num_warps=1,
    )  # fmt: skip
    return 1 + counts.long()


@triton.jit
@no_type_check
def count_kernel(
    score, stride, columns, start, wanted, lower, item, counts,
    deep: tl.constexpr, lanes: tl.constexpr, chunks: tl.constexpr,
):  # fmt: skip
    """Adds up how many of a part of a row are before each item, but for ties of its own chunk.

    What lies in one thread is added up first, so that threads tell each other one number an item.
    """
    row = tl.program_id(0).to(tl.int64)
    score += row * stride
    begin = tl.load(start + row)
    end = tl.load(start + row + 1)
    piece: tl.constexpr = deep * lanes
    chunk: tl.constexpr = 4 * piece
    within = tl.arange(0, deep)[:, None] * lanes + tl.arange(0, lanes)[None, :]
    for step in range(chunks):
        first = (tl.program_id(1) * chunks + step) * chunk
        a = scores_at(score, first + within, columns)
        b = scores_at(score, first + within + piece, columns)
        c = scores_at(score, first + within + 2 * piece, columns)
        d = scores_at(score, first + within + 3 * piece, columns)
        most_a, most_b, most_c, most_d = most(a), most(b), most(c), most(d)
        highest = tl.maximum(tl.maximum(most_a, most_b), tl.maximum(most_c, most_d))
        for place in range(begin, end):
            later = tl.load(item + place) >= first + chunk
            bound = tl.where(later, tl.load(lower + place), tl.load(wanted + place))
            if bound < highest:
                number = tl.zeros((lanes,), tl.float32)
                if bound < most_a:
                    number += above(a, bound)
                if bound < most_b:
                    number += above(b, bound)
                if bound < most_c:
                    number += above(c, bound)
                if bound < most_d:
                    number += above(d, bound)
                total = tl.sum(number, axis=0).to(tl.int32)
                tl.atomic_add(counts + place, total, sem="relaxed")


@triton.jit
@no_type_check
def scores_at(score, column, columns):
    """The scores of some columns; minus infinity where there are none."""
    return tl.load(score + column, mask=column < columns, other=float("-inf"))


@triton.jit
@no_type_check
def most(value):
    """The largest of a piece."""
    return tl.max(tl.max(value, axis=0), axis=0)


@triton.jit
@no_type_check
def above(value, bound):
    """How many of each lane are above a bound; as floats, which a GPU makes in one instruction."""
    return tl.sum(tl.where(value > bound, 1.0, 0.0), axis=0)


@triton.jit
@no_type_check
def equal_kernel(score, stride, row, item, wanted, counts, chunk: tl.constexpr, tile: tl.constexpr):
    """Adds up how many equal scores are before an item in its own chunk."""
    place = tl.program_id(0)
    mine = tl.load(item + place)
    value = tl.load(wanted + place)
    score += tl.load(row + place).to(tl.int64) * stride
    number = tl.zeros((tile,), tl.int32)
    for first in range(mine // chunk * chunk, mine, tile):
        column = first + tl.arange(0, tile)
        other = tl.load(score + column, mask=column < mine, other=float("nan"))
        number += (other == value).to(tl.int32)
    tl.atomic_add(counts + place, tl.sum(number, axis=0), sem="relaxed")
