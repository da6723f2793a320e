"""The largest of each row in little more than one reading, where a sort takes many."""

from typing import no_type_check

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor

from nobackfill.kernels.order import ordered_bits, place, value_at

MOST = 512  # asked for; for more, torch is as fast
RUN = 2  # columns that go to a group together: more are quicker read, but crowd it
LONG = 2**17  # columns
MOST_GROUPS = 8192
NOTHING = -(2**63)  # below every key


def fits(dtype: torch.dtype, columns: int, k: int) -> bool:
    """Whether `largest` takes rows of so many columns: few asked for, of many."""
    return dtype == torch.float32 and 1 <= k <= MOST and columns >= RUN * groups_for(k)


def groups_for(k: int, columns: int = 0) -> int:
    """Into how many groups a row is dealt, so that the k largest seldom share one.

    In long rows into more: fewer columns are then read twice.
    """
    fewest = max(256, 1 << (8 * k - 1).bit_length())
    longer = 1 + 7 * (columns >= LONG)
    return max(fewest, min(MOST_GROUPS, longer * fewest))


def room_for(k: int) -> int:
    """How many values of a row may reach its floor."""
    return 1 << (2 * k - 1).bit_length()


def largest(
    score: Float[Tensor, "rows columns"],
    k: int,
    column: Int[Tensor, "rows k"],
    value: Float[Tensor, "rows k"],
    found: Int[Tensor, " rows"],
) -> None:
    r"""Writes columns and values of the `k` largest of each row, best first, ties by column.

    Columns are dealt into `n` groups in pairs, :math:`j` into group
    :math:`\lfloor j / 2 \rfloor \bmod n`. The `k`-th largest of the groups' maxima is a floor: `k`
    values or more reach it, and few more, as the largest seldom share a group. One reading finds
    the maxima, a bisection over their bits the floor; then only the groups that reach it are read
    again, and what reaches it there is sorted.

    Args:
        score: What is looked through.
        k: How many are wanted.
        column: Written.
        value: Written.
        found: Written: how many values reached the floor. Where these are more than `room_for(k)`,
            as in a row of many equal values, its columns and values are of no use, and it must be
            sorted whole.
    """
    rows, columns = score.shape
    room, groups = room_for(k), groups_for(k, columns)
    group = torch.empty(rows, room, dtype=torch.int32, device=score.device)
    key = torch.empty(rows, room, dtype=torch.int64, device=score.device)
    largest_kernel[(rows,)](
        score, score.stride(0), columns, group, key, column, value, found,
        k=k, room=room, groups=groups, run=RUN, nothing=NOTHING,
        num_warps=8 if groups > 1024 else 4,
    )  # fmt: skip


@triton.jit
@no_type_check
def largest_kernel(
    score, stride, columns, group, key, column, value, found,
    k: tl.constexpr, room: tl.constexpr, groups: tl.constexpr, run: tl.constexpr,
    nothing: tl.constexpr,
):  # fmt: skip
    """All of one row; what its threads tell each other goes through `group` and `key`."""
    row = tl.program_id(0).to(tl.int64)
    score += row * stride
    group += row * room
    key += row * room
    floor, groups_found = find_floor(score, columns, group, k, room, groups, run)
    tl.debug_barrier()
    count = keep_reaching(score, columns, floor, groups_found, group, key, room, groups, run)
    tl.debug_barrier()
    at = tl.arange(0, room)
    ordered = tl.sort(tl.load(key + at, mask=at < count, other=nothing), descending=True)
    tl.store(column + row * k + at, 0xFFFFFFFF - (ordered & 0xFFFFFFFF), mask=at < k)
    tl.store(value + row * k + at, value_at(ordered), mask=at < k)
    tl.store(found + row, tl.maximum(count, groups_found))


@triton.jit
@no_type_check
def find_floor(
    score, columns, group,
    k: tl.constexpr, room: tl.constexpr, groups: tl.constexpr, run: tl.constexpr,
):  # fmt: skip
    """The floor of a row, and how many groups reach it; writes which."""
    number = tl.arange(0, groups)
    within = number[:, None] * run + tl.arange(0, run)[None, :]
    highest = tl.full((groups,), -2147483648, tl.int32)
    for first in range(0, columns, groups * run):
        column = first + within
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
    tl.store(group + position, number, mask=(reaches > 0) & (position < room))
    return low, tl.sum(reaches, axis=0)


@triton.jit
@no_type_check
def keep_reaching(
    score, columns, floor, groups_found, group, key,
    room: tl.constexpr, groups: tl.constexpr, run: tl.constexpr,
):  # fmt: skip
    """Writes the keys of all that reaches the floor of a row; how many they are."""
    slot = tl.arange(0, room)
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
        one = tl.reshape(reaches.to(tl.int32), (room * run,))
        position = count + tl.cumsum(one, 0) - one
        tl.store(
            key + position,
            tl.reshape(here, (room * run,)),
            mask=(one > 0) & (position < room),
        )
        count += tl.sum(one, axis=0)
    return count
