"""Ranks of a few items in long rows, counted in one reading of the scores."""

from typing import no_type_check

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor

from nobackfill.kernels.order import ordered_bits, place, places

TILE = 1024  # columns looked at together
TILES = 32  # of one program
MOST = 1024  # items of a row; for more, sort it
NEVER = 2**63 - 1  # a key that nothing exceeds


def fits(score: Float[Tensor, "query gallery"], longest: int) -> bool:
    """Whether `ranks` takes such a block."""
    return score.dtype == torch.float32 and longest <= MOST


def ranks(
    score: Float[Tensor, "query gallery"],
    row: Int[Tensor, " pairs"],
    item: Int[Tensor, " pairs"],
    start: Int[Tensor, " query_and_one"],
    longest: int,
) -> Int[Tensor, " pairs"]:
    r"""Rank of each item in its row, ties by column.

    .. math::
        \mathrm{rank}(p) = 1 + |\{j : (s_j, -j) > (s_p, -p)\}|

    The items of a row are sorted; of each score a binary search tells how many of them it is
    before; a histogram of these numbers, summed from its end, counts for all items at once. The
    search looks at scores alone, and at columns too only where it has met an equal score.

    Args:
        score: Higher is better.
        row: Of each item, ascending, on the device of the scores.
        item: Its column.
        start: Where the items of each row begin.
        longest: The most items of a row, or more.
    """
    queries, gallery = score.shape
    width = triton.next_power_of_2(max(longest, 2))
    within = torch.arange(len(row), device=row.device) - start[row]
    wanted = torch.full((queries, width), NEVER, dtype=torch.int64, device=score.device)
    wanted[row, within] = places(score[row, item], item)
    wanted, order = wanted.sort(dim=1)
    high = (wanted >> 32).to(torch.int32)
    counts = torch.zeros(queries, 2 * width, dtype=torch.int32, device=score.device)
    grid = (queries, triton.cdiv(gallery, TILE * TILES))  # a GPU takes most along the first
    count_kernel[grid](
        score, score.stride(0), gallery, wanted, high, counts,
        width=width, steps=width.bit_length() - 1, tile=TILE, tiles=TILES,
    )  # fmt: skip
    from_end = counts.long().flip(1).cumsum(1).flip(1)  # at i: before at least i items
    before = torch.empty_like(wanted).scatter_(1, order, from_end[:, 1 : width + 1])
    return 1 + before[row, within]


@triton.jit
@no_type_check
def count_kernel(
    score, stride, columns, wanted, high, counts,
    width: tl.constexpr, steps: tl.constexpr, tile: tl.constexpr, tiles: tl.constexpr,
):  # fmt: skip
    """Adds up how many scores of a part of a row are before 0, 1, … of the wanted keys."""
    row = tl.program_id(0).to(tl.int64)
    score += row * stride
    wanted += row * width
    high += row * width
    histogram = tl.zeros((2 * width,), tl.int32)
    for step in range(tiles):
        column = (tl.program_id(1) * tiles + step) * tile + tl.arange(0, tile)
        value = tl.load(score + column, mask=column < columns, other=float("-inf"))
        bits = ordered_bits(value)
        below = tl.zeros((tile,), tl.int32)  # wanted scores smaller than this one, so far
        for power in tl.static_range(steps - 1, -1, -1):
            middle = below + (1 << power)
            below = tl.where(tl.load(high + middle - 1) < bits, middle, below)
        next_one = tl.load(high + below)
        equal = tl.max((next_one == bits).to(tl.int32), axis=0)
        below += (next_one < bits).to(tl.int32)
        if equal > 0:  # by columns, too
            key = place(value, column)
            below = tl.zeros((tile,), tl.int32)
            for power in tl.static_range(steps - 1, -1, -1):
                middle = below + (1 << power)
                below = tl.where(tl.load(wanted + middle - 1) < key, middle, below)
            below += (tl.load(wanted + below) < key).to(tl.int32)
        below = tl.where(column < columns, below, 0)
        histogram += tl.histogram(below, 2 * width)
    at = tl.arange(0, 2 * width)
    tl.atomic_add(counts + row * 2 * width + at, histogram)
