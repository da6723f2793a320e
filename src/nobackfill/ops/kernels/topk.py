"""The largest of each row in little more than one reading, where a sort takes many."""

from typing import no_type_check

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor

from nobackfill.ops.kernels.sort_keys import ordered_bits, place, value_at

MOST = 512  # asked for; for more, torch is as fast
LONG, LONGEST = 2**16, 2**18  # columns
MOST_GROUPS = 4096
NOTHING = -(2**63)  # below every key


def fits(score: Float[Tensor, "rows columns"], k: int) -> bool:
    """Whether `largest` takes such a block: few asked for, of many."""
    many = score.shape[1] >= 2 * groups_for(k)
    return score.dtype == torch.float32 and 1 <= k <= MOST and many


def groups_for(k: int, columns: int = 0) -> int:
    """Into how many groups a row is dealt, so that the k largest seldom share one.

    In long rows into more: fewer columns are then read twice.
    """
    fewest = max(256, 1 << (8 * k - 1).bit_length())
    longer = 4 if columns >= LONGEST else 2 if columns >= LONG else 1
    return max(fewest, min(MOST_GROUPS, longer * fewest))


def run_for(k: int, columns: int) -> int:
    """How many columns go to a group together: four are read faster than two."""
    return 4 if columns >= 4 * groups_for(k, columns) else 2


def largest(
    score: Float[Tensor, "rows columns"],
    k: int,
    column: Int[Tensor, "rows k"],
    value: Float[Tensor, "rows k"],
) -> None:
    r"""Writes columns and values of the `k` largest of each row, best first, ties by column.

    Columns are dealt into `n` groups, `r` at a time: :math:`j` into group
    :math:`\lfloor j / r \rfloor \bmod n`. The `k`-th largest of the groups' maxima is a floor: `k`
    values or more reach it, and few more, as the largest seldom share a group. One reading finds
    the maxima, a bisection over their bits the floor; then only the groups that reach it are read
    again, and what reaches it there is sorted.

    There is room for `4 k` of them, so for neighbouring columns that are all among the largest,
    too. Where even more reach the floor, as in a row of many equal values, the `k`-th largest of
    all scores with their columns is found by bisection, in some sixty readings.

    Args:
        score: What is looked through.
        k: How many are wanted.
        column: Written.
        value: Written.
    """
    rows, columns = score.shape
    slots = triton.next_power_of_2(2 * k)
    group = torch.empty(rows, slots, dtype=torch.int32, device=score.device)
    key = torch.empty(rows, 2 * slots, dtype=torch.int64, device=score.device)
    largest_kernel[(rows,)](
        score, score.stride(0), columns, group, key, column, value,
        k=k, slots=slots, groups=groups_for(k, columns), run=run_for(k, columns), nothing=NOTHING,
    )  # fmt: skip


@triton.jit
@no_type_check
def largest_kernel(
    score, stride, columns, group, key, column, value,
    k: tl.constexpr, slots: tl.constexpr, groups: tl.constexpr, run: tl.constexpr,
    nothing: tl.constexpr,
):  # fmt: skip
    """All of one row; what its threads tell each other goes through `group` and `key`."""
    room: tl.constexpr = 2 * slots
    row = tl.program_id(0).to(tl.int64)
    score += row * stride
    group += row * slots
    key += row * room
    floor, groups_found = find_floor(score, columns, group, k, slots, groups, run)
    tl.debug_barrier()
    count = keep_reaching(score, columns, floor, groups_found, group, key, slots, groups, run)
    if (count > room) | (groups_found > slots):
        tl.debug_barrier()
        count = keep_exactly(score, columns, key, k, groups)
    tl.debug_barrier()
    at = tl.arange(0, room)
    ordered = tl.sort(tl.load(key + at, mask=at < count, other=nothing), descending=True)
    tl.store(column + row * k + at, 0xFFFFFFFF - (ordered & 0xFFFFFFFF), mask=at < k)
    tl.store(value + row * k + at, value_at(ordered), mask=at < k)


@triton.jit
@no_type_check
def find_floor(
    score, columns, group,
    k: tl.constexpr, slots: tl.constexpr, groups: tl.constexpr, run: tl.constexpr,
):  # fmt: skip
    """The floor of a row, and how many groups reach it; writes which."""
    number = tl.arange(0, groups)
    within = number[:, None] * run + tl.arange(0, run)[None, :]
    highest = tl.full((groups,), -2147483648, tl.int32)
    whole = columns - columns % (groups * run)
    for first in range(0, whole, groups * run):
        value = tl.load(score + first + within)
        highest = tl.maximum(highest, tl.max(ordered_bits(value), axis=1))
    if whole < columns:
        column = whole + within
        value = tl.load(score + column, mask=column < columns, other=float("-inf"))
        highest = tl.maximum(highest, tl.max(ordered_bits(value), axis=1))
    low = tl.min(highest, axis=0).to(tl.int64)  # all groups reach it
    high = tl.max(highest, axis=0).to(tl.int64)
    while low < high:
        middle = low + (high - low + 1) // 2
        enough = tl.sum((highest >= middle.to(tl.int32)).to(tl.int32), axis=0) >= k
        low = tl.where(enough, middle, low)
        high = tl.where(enough, high, middle - 1)
    reaches = (highest >= low.to(tl.int32)).to(tl.int32)
    position = tl.cumsum(reaches, 0) - reaches
    tl.store(group + position, number, mask=(reaches > 0) & (position < slots))
    return low, tl.sum(reaches, axis=0)


@triton.jit
@no_type_check
def keep_reaching(
    score, columns, floor, groups_found, group, key,
    slots: tl.constexpr, groups: tl.constexpr, run: tl.constexpr,
):  # fmt: skip
    """Writes the keys of all that reaches the floor of a row; how many they are."""
    slot = tl.arange(0, slots)
    there = slot < groups_found
    number = tl.load(group + slot, mask=there, other=0)
    within = number[:, None] * run + tl.arange(0, run)[None, :]
    count = tl.full((), 0, tl.int32)
    for first in range(0, columns, groups * run):
        column = first + within
        inside = there[:, None] & (column < columns)
        value = tl.load(score + column, mask=inside, other=float("-inf"))
        here = place(value, column)
        reaches = ((here >> 32) >= floor) & inside
        which = tl.reshape(reaches, (slots * run,))
        count = keep(tl.reshape(here, (slots * run,)), which, count, key, 2 * slots)
    return count


@triton.jit
@no_type_check
def keep_exactly(score, columns, key, k: tl.constexpr, tile: tl.constexpr):
    """Writes the keys of the k largest of a row, whatever it holds; k."""
    at = tl.arange(0, tile)
    low = tl.full((), -9223372036854775808, tl.int64)
    high = tl.full((), 9223372036854775807, tl.int64)
    while low < high:
        middle = (low | high) - ((low ^ high) >> 1)  # halfway, rounded up
        reaching = tl.zeros((tile,), tl.int32)
        for first in range(0, columns, tile):
            column = first + at
            value = tl.load(score + column, mask=column < columns, other=float("-inf"))
            reaching += ((place(value, column) >= middle) & (column < columns)).to(tl.int32)
        enough = tl.sum(reaching, axis=0) >= k
        low = tl.where(enough, middle, low)
        high = tl.where(enough, high, middle - 1)
    count = tl.full((), 0, tl.int32)
    for first in range(0, columns, tile):
        column = first + at
        value = tl.load(score + column, mask=column < columns, other=float("-inf"))
        here = place(value, column)
        count = keep(here, (here >= low) & (column < columns), count, key, k)
    return count


@triton.jit
@no_type_check
def keep(here, which, count, key, room: tl.constexpr):
    """Writes some keys behind those that are there; how many there are now."""
    one = which.to(tl.int32)
    position = count + tl.cumsum(one, 0) - one
    tl.store(key + position, here, mask=which & (position < room))
    return count + tl.sum(one, axis=0)
