"""Ranks of a few items in long rows, counted in one pass over the scores."""

from typing import no_type_check

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Int, Int32
from torch import Tensor

DEEP, LANES = 4, 128  # columns of a piece; each of 32 threads holds 4 times 4 of them
CHUNK = 4 * DEEP * LANES  # columns loaded together, in four pieces
CHUNKS = 8  # per program
TOGETHER = 32  # items per group of a program, one per thread
MOST = 1024  # items per row; rows with more are sorted
LONGEST = 65_535 * CHUNK * CHUNKS  # columns; a GPU takes 65,535 programs along the second axis


def fits(score: Float[Tensor, "query gallery"], longest: int) -> bool:
    """Whether `ascending_ranks` supports a block: float32, contiguous rows, few items."""
    plain = score.dtype == torch.float32 and score.stride(1) == 1
    return plain and score.shape[1] <= LONGEST and longest <= MOST


def ascending_ranks(
    score: Float[Tensor, "query gallery"],
    item: Int[Tensor, " pairs"],
    start: Int[Tensor, " query_and_one"],
    longest: int,
) -> Int32[Tensor, " pairs"]:
    """Returns the ranks of the items of each row, ascending; ties by column.

    A program loads columns of a row and compares them with one item after the other, in two
    instructions per score. Before the item's own chunk of columns, equal scores count: it counts
    the scores above the next lower float. After the own chunk, equal scores do not count. Within
    it, a second kernel counts them.

    Most items are better than most of the row. The kernel therefore first computes the best and
    the second best of each four scores, one of each piece, once for all items. An item above all
    second bests is compared with the bests only, and an item above all bests with nothing.

    The columns in `item` are ordered by row; those of a row begin at `start`. No item has the score
    minus infinity, and no row more than `longest` items.
    """
    queries, gallery = score.shape
    ranks = torch.ones(len(item), dtype=torch.int32, device=score.device)  # ranks begin with 1
    grid = (queries, triton.cdiv(gallery, CHUNK * CHUNKS))  # the first axis allows most programs
    count_kernel[grid](
        score, score.stride(0), gallery, start, item, ranks,
        deep=DEEP, lanes=LANES, chunks=CHUNKS, together=TOGETHER, num_warps=1,
    )  # fmt: skip
    finish_kernel[(queries,)](
        score, score.stride(0), start, item, ranks,
        width=triton.next_power_of_2(longest), chunk=CHUNK, num_warps=1,
    )  # fmt: skip
    return ranks


@triton.jit
@no_type_check
def count_kernel(
    score, stride, columns, start, item, ranks,
    deep: tl.constexpr, lanes: tl.constexpr, chunks: tl.constexpr, together: tl.constexpr,
):  # fmt: skip
    """Counts the scores of a part of a row before each item, without ties of its own chunk."""
    row = tl.program_id(0).to(tl.int64)
    score += row * stride
    begin = tl.load(start + row).to(tl.int32)
    end = tl.load(start + row + 1).to(tl.int32)
    piece: tl.constexpr = deep * lanes
    chunk: tl.constexpr = 4 * piece
    within = tl.arange(0, deep)[:, None] * lanes + tl.arange(0, lanes)[None, :]
    for group in range(begin, end, together):
        place_of = group + tl.arange(0, together)
        there = place_of < end
        column = tl.load(item + place_of, mask=there, other=0).to(tl.int32)
        own = tl.load(score + column, mask=there, other=0.0)
        lower = next_lower(own)
        total = tl.zeros((together,), tl.int32)
        for step in range(chunks):
            first = (tl.program_id(1) * chunks + step) * chunk
            a = scores_at(score, first + within, columns)
            b = scores_at(score, first + within + piece, columns)
            c = scores_at(score, first + within + 2 * piece, columns)
            d = scores_at(score, first + within + 3 * piece, columns)
            of_ab, of_cd = tl.maximum(a, b), tl.maximum(c, d)
            best = tl.maximum(of_ab, of_cd)
            rest = tl.maximum(tl.minimum(a, b), tl.minimum(c, d))
            second = tl.maximum(rest, tl.minimum(of_ab, of_cd))
            most_best, most_second = most(best), most(second)
            bounds = tl.where(column >= first + chunk, lower, own)
            for place in range(group, tl.minimum(group + together, end)):
                bound = value_of(bounds, place_of == place)
                if bound < most_best:
                    if bound < most_second:
                        number = above(a, bound) + above(b, bound)
                        number += above(c, bound) + above(d, bound)
                    else:
                        number = above(best, bound)
                    total += tl.where(place_of == place, in_all(number), 0)
        tl.atomic_add(ranks + place_of, total, mask=there, sem="relaxed")


@triton.jit
@no_type_check
def next_lower(value):
    """Returns the next lower float."""
    bits = value.to(tl.int32, bitcast=True)
    lower = tl.where(bits > 0, bits - 1, tl.where(bits == 0, -2147483647, bits + 1))
    return lower.to(tl.float32, bitcast=True)


@triton.jit
@no_type_check
def value_of(values, only):
    """Returns the value where `only` is true, by an integer sum, which threads compute fast."""
    bits = tl.where(only, values.to(tl.int32, bitcast=True), 0)
    return tl.sum(bits, axis=0).to(tl.float32, bitcast=True)


@triton.jit
@no_type_check
def scores_at(score, column, columns):
    """Loads the scores of columns; minus infinity beyond the last."""
    return tl.load(score + column, mask=column < columns, other=float("-inf"))


@triton.jit
@no_type_check
def most(value):
    """Returns the maximum of a piece."""
    return tl.max(tl.max(value, axis=0), axis=0)


@triton.jit
@no_type_check
def above(value, bound):
    """Counts the values of each lane above a bound, as floats: one instruction on a GPU."""
    return tl.sum(tl.where(value > bound, 1.0, 0.0), axis=0)


@triton.jit
@no_type_check
def in_all(number):
    """Sums first within threads, then over threads as integers, which they add fast."""
    of_thread = tl.sum(tl.reshape(number, (number.shape[0] // 4, 4)), axis=1)
    return tl.sum(of_thread.to(tl.int32), axis=0)


@triton.jit
@no_type_check
def finish_kernel(score, stride, start, item, ranks, width: tl.constexpr, chunk: tl.constexpr):
    """Adds the number of ties before each item in its own chunk, and sorts a row's ranks."""
    row = tl.program_id(0).to(tl.int64)
    score += row * stride
    begin = tl.load(start + row).to(tl.int32)
    end = tl.load(start + row + 1).to(tl.int32)
    place_of = begin + tl.arange(0, width)
    rank = tl.load(ranks + place_of, mask=place_of < end, other=2147483647)
    for place in range(begin, end):
        mine = tl.load(item + place).to(tl.int32)
        column = mine // chunk * chunk + tl.arange(0, chunk)
        other = tl.load(score + column, mask=column < mine, other=float("nan"))
        equal = (other == tl.load(score + mine)).to(tl.int32)
        rank += tl.where(place_of == place, tl.sum(equal, axis=0), 0)
    tl.store(ranks + place_of, tl.sort(rank), mask=place_of < end)
