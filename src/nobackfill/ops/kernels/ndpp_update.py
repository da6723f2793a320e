"""Classes pushed away by the nearest of others, from all similarities, in one reading of these."""

from functools import cache
from statistics import NormalDist
from typing import no_type_check

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

MOST = 256  # neighbours
LONGEST = 8192  # columns; a row is held whole
WIDEST = 4096  # dimensions; so is a class
ON_THE_WAY = 4096  # numbers of neighbours that are loaded at a time
NARROW = 4096  # columns that a group of 32 threads holds; more take two


def fits(x: Float[Tensor, "rows dim"], n: Float[Tensor, "classes dim"], k: int) -> bool:
    """Whether `pushed_by_nearest` takes such classes: few of not too many push."""
    single = x.dtype == n.dtype == torch.float32
    classes, dim = n.shape
    return single and 1 <= k <= MOST and 2 * k <= classes <= LONGEST and dim <= WIDEST


def pushed_by_nearest(
    score: Float[Tensor, "rows classes_and_more"],
    x: Float[Tensor, "rows dim"],
    n: Float[Tensor, "classes dim"],
    k: int,
    strength: float,
    *,
    own: bool,
) -> Float[Tensor, "rows dim"]:
    r"""Each row of `x`, moved away from the `k` rows of `n` with the largest scores.

    .. math::
        x_c + \alpha \sum_{j \in N_k(c)} w_{cj} (x_c - n_j), \qquad
        w_{cj} = \frac{\max(0, s_{cj})}{\max(10^{-8}, \sum_{i \in N_k(c)} \max(0, s_{ci}))},

    where :math:`N_k(c)` are the columns of the `k` largest of row `c`, of equal ones the first. The
    slow twin is `x + strength * weighted_pushes(...)`, see `nobackfill.methods.perturbation.ndpp`.

    A sum asks for no order, so nothing is sorted. Scores of many classes lie about as the normal
    distribution does, so mean and deviation tell a floor that some `1.5 k` reach; where fewer than
    `k` do or more than there is room for, bisection finds another. What reaches it is written down,
    and bisection among that finds the `k` largest.

    Args:
        score: :math:`s`, as small as cosines; a row's numbers lie next to each other. What comes
            after the classes, to fill up a row, may be anything.
        x: What is moved.
        n: What pushes.
        k: How many push, see `fits`.
        strength: :math:`\alpha`.
        own: Whether column `c` may push row `c`.
    """
    x, n = x.contiguous(), n.contiguous()
    rows, dim = x.shape
    classes = len(n)
    room = max(16, triton.next_power_of_2(2 * k))
    warps = 1 if classes <= NARROW else 2  # fewer threads have less to tell each other
    lanes = 128 * warps
    block = triton.next_power_of_2(dim)
    out = torch.empty_like(x)
    near = torch.empty(rows, room, dtype=torch.int32, device=x.device)
    weight = torch.empty(rows, room, dtype=torch.float32, device=x.device)
    nearby_kernel[(rows,)](
        score, score.stride(0), score.shape[1], classes, deviations_above(k, classes),
        x, n, out, near, weight, dim, strength,
        own=own, k=k, room=room, deep=max(1, triton.next_power_of_2(classes) // lanes), lanes=lanes,
        block=block, unrolled=max(1, ON_THE_WAY // max(block, 256)), num_warps=warps,
    )  # fmt: skip
    return out


@cache
def deviations_above(k: int, classes: int) -> float:
    """How many deviations above the mean `1.5 k` of the scores with so many classes begin."""
    return NormalDist().inv_cdf(1 - min(0.5, 1.5 * k / classes))


@triton.jit
@no_type_check
def nearby_kernel(
    score, stride, columns, classes, guess, x, n, out, near, weight, dim, strength,
    own: tl.constexpr, k: tl.constexpr, room: tl.constexpr, deep: tl.constexpr,
    lanes: tl.constexpr, block: tl.constexpr, unrolled: tl.constexpr,
):  # fmt: skip
    """All of one class; what its threads tell each other goes through `near` and `weight`."""
    row = tl.program_id(0).to(tl.int64)
    score += row * stride
    near += row * room
    weight += row * room
    column = tl.arange(0, deep)[:, None] * lanes + tl.arange(0, lanes)[None, :]
    value = tl.load(score + column, mask=column < columns, other=float("-inf"))
    value = tl.where(column < classes, value, float("-inf"))
    if not own:
        value = tl.where(column == row, float("-inf"), value)
    low, high, found = find_floor(value, classes if own else classes - 1, guess, k, room)
    if found > room:
        value = tl.where(first_of_equal(value, low, k), value, float("-inf"))
    count = keep(value >= low, column, near, room)
    tl.debug_barrier()
    count, share = choose(score, near, weight, count, low, high, classes, k, room)
    tl.debug_barrier()
    at = tl.arange(0, block)
    inside = at < dim
    pull = weighted_sum(n, near, weight, count, dim, at, inside, k, block, unrolled)
    place = tl.load(x + row * dim + at, mask=inside, other=0.0)
    tl.store(out + row * dim + at, place + strength * (share * place - pull), mask=inside)


@triton.jit
@no_type_check
def find_floor(value, number, guess, k: tl.constexpr, room: tl.constexpr):
    """A floor that k values of a row reach and, if not too many are equal, at most `room`.

    Also a value that fewer than k reach, and how many reach the floor.
    """
    there = value > float("-inf")
    plain = tl.where(there, value, 0.0)
    mean = over_all(plain) / number
    variance = over_all(plain * plain) / number - mean * mean
    start = mean + guess * tl.sqrt(tl.maximum(variance, 0.0))
    low = tl.min(tl.min(tl.where(there, value, float("inf")), axis=0), axis=0)
    high = tl.max(tl.max(value, axis=0), axis=0)
    above = high + tl.maximum(tl.abs(high) * 2.4e-7, 1e-30)  # more than the largest: none reach it
    return raise_floor(value, low, above, start, number, k, room)


@triton.jit
@no_type_check
def raise_floor(value, low, high, start, number, k: tl.constexpr, most: tl.constexpr):
    """Bisects between a floor that all values reach, `number` of them, and what fewer than k do.

    Ends once at most `most` values reach the floor, or nothing is between the two; where one is
    NaN, at once.
    """
    halfway = low + (high - low) * 0.5
    middle = tl.where((start > low) & (start < high), start, halfway)
    found = number.to(tl.float32)
    while (found > most) & (middle > low) & (middle < high):
        many = over_all(tl.where(value >= middle, 1.0, 0.0))  # floats: one instruction each
        enough = many >= k
        found = tl.where(enough, many, found)
        low = tl.where(enough, middle, low)
        high = tl.where(enough, high, middle)
        middle = low + (high - low) * 0.5
    return low, high, found


@triton.jit
@no_type_check
def over_all(value):
    """The sum of a tile: of each lane, and then of these."""
    return tl.sum(tl.sum(value, axis=0), axis=0)


@triton.jit
@no_type_check
def first_of_equal(value, floor, k: tl.constexpr):
    """Which are above a floor, fewer than k, or equal to it and the first, k in all."""
    above = value > floor
    equal = (value == floor).to(tl.int32)
    of_line = tl.sum(equal, axis=1)  # lines lie in the order of columns
    before = tl.cumsum(of_line, 0) - of_line
    rank = before[:, None] + tl.cumsum(equal, 1)
    return above | ((equal > 0) & (rank <= k - over_all(above.to(tl.int32))))


@triton.jit
@no_type_check
def keep(kept, column, near, room: tl.constexpr):
    """Writes down some columns, in any order; how many they are."""
    one = kept.to(tl.int32)
    of_lane = tl.sum(one, axis=0)
    before = tl.cumsum(of_lane, 0) - of_lane
    position = before[None, :] + tl.cumsum(one, 0) - one
    tl.store(near + position, column, mask=kept & (position < room))
    return tl.sum(of_lane, axis=0)


@triton.jit
@no_type_check
def choose(
    score, near, weight, count, low, high, classes, k: tl.constexpr, room: tl.constexpr
):  # fmt: skip
    """Of the columns written down leaves the k largest, and writes their weights.

    Returns how many these are, fewer than k only where scores are NaN, and the sum of the weights.
    """
    slot = tl.arange(0, room)
    there = slot < count
    column = tl.load(near + slot, mask=there, other=0)
    value = tl.load(score + column, mask=there, other=float("-inf"))
    low, high, found = raise_floor(value[None, :], low, high, low, count, k, k)
    chosen = there & (value >= low)
    if found > k:
        above = value > low
        equal = there & (value == low)
        last = last_column(equal, column, k - tl.sum(above.to(tl.int32), axis=0), classes)
        chosen = above | (equal & (column <= last))
    one = chosen.to(tl.int32)
    positive = tl.where(chosen, tl.maximum(value, 0.0), 0.0)
    total = tl.sum(positive, axis=0)
    scale = 1.0 / tl.maximum(total, 1e-8)
    position = tl.cumsum(one, 0) - one
    tl.debug_barrier()  # all have read
    tl.store(near + position, column, mask=chosen)
    tl.store(weight + position, positive * scale, mask=chosen)
    return tl.sum(one, axis=0), total * scale


@triton.jit
@no_type_check
def last_column(equal, column, wanted, classes):
    """Up to which column as many of the equal are as wanted."""
    first = tl.full((), 0, tl.int32)
    last = first + classes - 1
    while first < last:
        middle = first + (last - first) // 2
        enough = tl.sum((equal & (column <= middle)).to(tl.int32), axis=0) >= wanted
        last = tl.where(enough, middle, last)
        first = tl.where(enough, first, middle + 1)
    return last


@triton.jit
@no_type_check
def weighted_sum(
    n, near, weight, count, dim, at, inside,
    k: tl.constexpr, block: tl.constexpr, unrolled: tl.constexpr,
):  # fmt: skip
    """The sum of the neighbours, each times its weight."""
    pull = tl.zeros((block,), tl.float32)
    for first in range(0, k, unrolled):
        for step in tl.static_range(unrolled):
            some = first + step < count
            other = tl.load(near + first + step, mask=some, other=0).to(tl.int64)
            part = tl.load(weight + first + step, mask=some, other=0.0)
            pull += part * tl.load(n + other * dim + at, mask=inside, other=0.0)
    return pull
