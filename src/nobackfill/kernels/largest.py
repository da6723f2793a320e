"""The largest of each row in little more than one reading, where a sort takes many."""

from typing import no_type_check

import torch
import triton
import triton.language as tl
from jaxtyping import Bool, Float, Int
from torch import Tensor

from nobackfill.kernels.order import place, value_at

MOST = 512  # asked for; for more, torch is as fast
RUN = 2  # columns that go to a group together: more are quicker read, but crowd it
NOTHING = -(2**63)  # below every key


def fits(score: Float[Tensor, "rows columns"], k: int) -> bool:
    """Whether `largest` takes such a block: few asked for, of many."""
    return score.dtype == torch.float32 and k <= MOST and score.shape[1] >= RUN * groups_for(k)


def groups_for(k: int) -> int:
    """Into how many groups a row is dealt, so that the k largest seldom share one."""
    return max(256, 1 << (8 * k - 1).bit_length())


def largest(
    score: Float[Tensor, "rows columns"], k: int
) -> tuple[Int[Tensor, "rows k"], Float[Tensor, "rows k"], Bool[Tensor, " rows"]]:
    r"""Columns and values of the `k` largest of each row, best first, ties by column.

    Columns are dealt into `n` groups in pairs, :math:`j` into group
    :math:`\lfloor j / 2 \rfloor \bmod n`. The `k`-th largest of the groups' maxima is a floor: `k`
    values or more reach it, and few more, as the largest seldom share a group. One reading finds
    the maxima, a bisection over their bits the floor; then only the groups that reach it are read
    again, and what reaches it there is sorted.

    Returns:
        Columns, values, and whether too much reached the floor of a row to be kept: such rows
        (of many equal values, say) hold nothing useful and must be sorted whole.
    """
    rows, columns = score.shape
    room = 1 << (2 * k - 1).bit_length()
    device = score.device
    group = torch.empty(rows, room, dtype=torch.int32, device=device)
    key = torch.full((rows, room), NOTHING, dtype=torch.int64, device=device)
    floor = torch.empty(rows, dtype=torch.int64, device=device)
    groups_found = torch.empty(rows, dtype=torch.int32, device=device)
    found = torch.empty(rows, dtype=torch.int32, device=device)
    floor_kernel[(rows,)](
        score, score.stride(0), columns, floor, group, groups_found,
        k=k, room=room, groups=groups_for(k), run=RUN,
    )  # fmt: skip
    reach_kernel[(rows,)](
        score, score.stride(0), columns, floor, group, groups_found, key, found,
        room=room, groups=groups_for(k), run=RUN,
    )  # fmt: skip
    column = torch.empty(rows, k, dtype=torch.int64, device=device)
    value = torch.empty(rows, k, dtype=score.dtype, device=device)
    sort_kernel[(rows,)](key, column, value, k=k, room=room)
    return column, value, (found > room) | (groups_found > room)


@triton.jit
@no_type_check
def floor_kernel(
    score, stride, columns, floor, group, groups_found,
    k: tl.constexpr, room: tl.constexpr, groups: tl.constexpr, run: tl.constexpr,
):  # fmt: skip
    """Writes the floor of a row, and which groups reach it."""
    row = tl.program_id(0).to(tl.int64)
    score += row * stride
    number = tl.arange(0, groups)
    within = number[:, None] * run + tl.arange(0, run)[None, :]
    highest = tl.full((groups,), -2147483648, tl.int32)
    for first in range(0, columns, groups * run):
        column = first + within
        value = tl.load(score + column, mask=column < columns, other=float("-inf"))
        highest = tl.maximum(highest, tl.max((place(value, column) >> 32).to(tl.int32), axis=1))
    low = tl.full((), -2147483648, tl.int64)
    high = tl.full((), 2147483647, tl.int64)
    for _ in range(33):  # halvings of all int32 values
        middle = low + (high - low + 1) // 2
        enough = tl.sum((highest.to(tl.int64) >= middle).to(tl.int32), axis=0) >= k
        low = tl.where(enough, middle, low)
        high = tl.where(enough, high, middle - 1)
    reaches = (highest.to(tl.int64) >= low).to(tl.int32)
    position = tl.cumsum(reaches, 0) - reaches
    tl.store(group + row * room + position, number, mask=(reaches > 0) & (position < room))
    tl.store(groups_found + row, tl.sum(reaches, axis=0))
    tl.store(floor + row, low)


@triton.jit
@no_type_check
def reach_kernel(
    score, stride, columns, floor, group, groups_found, key, found,
    room: tl.constexpr, groups: tl.constexpr, run: tl.constexpr,
):  # fmt: skip
    """Writes the keys of all that reaches the floor of a row."""
    row = tl.program_id(0).to(tl.int64)
    score += row * stride
    low = tl.load(floor + row)
    slot = tl.arange(0, room)
    there = slot < tl.load(groups_found + row)
    number = tl.load(group + row * room + slot, mask=there, other=0)
    within = number[:, None] * run + tl.arange(0, run)[None, :]
    count = tl.full((), 0, tl.int32)
    for first in range(0, columns, groups * run):
        column = first + within
        inside = there[:, None] & (column < columns)
        value = tl.load(score + column, mask=inside, other=float("-inf"))
        here = place(value, column)
        reaches = ((here >> 32) >= low) & inside
        one = tl.reshape(reaches.to(tl.int32), (room * run,))
        position = count + tl.cumsum(one, 0) - one
        tl.store(
            key + row * room + position,
            tl.reshape(here, (room * run,)),
            mask=(one > 0) & (position < room),
        )
        count += tl.sum(one, axis=0)
    tl.store(found + row, count)


@triton.jit
@no_type_check
def sort_kernel(key, column, value, k: tl.constexpr, room: tl.constexpr):
    """Sorts the keys of a row and writes the k largest."""
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, room)
    ordered = tl.sort(tl.load(key + row * room + at), descending=True)
    tl.store(column + row * k + at, 0xFFFFFFFF - (ordered & 0xFFFFFFFF), mask=at < k)
    tl.store(value + row * k + at, value_at(ordered), mask=at < k)
