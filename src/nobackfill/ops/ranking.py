"""From scores to ranks: where in its ranking each relevant item stands.

Nothing is sorted that need not be. A query's relevant items are few; the rank of each is one plus
the number of gallery items before it, and that can be counted while the scores stream by.
"""

from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from nobackfill.ops.kernels import usable
from nobackfill.ops.nearest import for_each_row


def sorted_ranks(
    score: Float[Tensor, "query gallery"],
    row: Int[Tensor, " pairs"],
    item: Int[Tensor, " pairs"],
    *,
    complete: bool = False,
    longest: int | None = None,
) -> tuple[Int[Tensor, " hits"], Int[Tensor, " query"]]:
    """Ranks of the given items, ascending within each row, and how many each row has.

    Both come back on the device of the scores. A GPU that is told what it would have to look up
    need not be waited for.

    Args:
        score: Higher is better; minus infinity is not in the ranking.
        row: Of each item whose rank is wanted its row of `score`, ascending.
        item: Its column. Those that are not in the ranking are dropped.
        complete: Whether it is known that all are in the ranking.
        longest: The most items of a row, or more.
    """
    row, item = sent_to(score.device, row), sent_to(score.device, item)
    if not complete:
        kept = score[row, item] > -torch.inf
        row, item = row[kept], item[kept]
    start = row_starts(row, len(score))
    if score.device.type == "cpu":
        ranks = in_order(ranks_by_counting(score, row, item), row, score.shape[1])
    else:
        ranks = ranks_on_gpu(score, row, item, start, longest)
    return ranks.to(torch.int32), start.diff()


def in_order(
    rank: Int[Tensor, " pairs"], row: Int[Tensor, " pairs"], most: int
) -> Int[Tensor, " pairs"]:
    """Ranks from 1 to `most`, ascending within each row.

    Example:
        >>> in_order(torch.tensor([9, 7, 8]), torch.tensor([0, 0, 2]), 9)
        tensor([7, 9, 8])
    """
    key = row * most  # ranks begin with 1, so rows stay apart
    ordered: Tensor = (key + rank).sort().values - key
    return ordered


def sent_to(device: torch.device, indices: Int[Tensor, " pairs"]) -> Int[Tensor, " pairs"]:
    """The same on a device, without waiting for a GPU to be done with what came before.

    What comes from a GPU is waited for, as a CPU would read it before it is there.
    """
    if device.type == "cuda" and indices.device.type == "cpu":
        indices = indices.pin_memory()
    return indices.to(device, non_blocking=device.type != "cpu")


def on_the_way_back(*results: Tensor) -> Callable[[], list[Tensor]]:
    """Sends results to the CPU; a GPU goes on meanwhile. The function it gives waits for them."""
    device = results[0].device
    if device.type != "cuda":
        return lambda: [result.cpu() for result in results]
    there = [result.to("cpu", non_blocking=True) for result in results]
    sent = torch.cuda.Event()
    sent.record(torch.cuda.current_stream(device))

    def arrived() -> list[Tensor]:
        sent.synchronize()
        return there

    return arrived


def row_starts(row: Int[Tensor, " pairs"], rows: int) -> Int[Tensor, " rows_and_one"]:
    """Where the pairs of each row begin, if they are in order, and where the last ones end.

    Example:
        >>> row_starts(torch.tensor([0, 0, 2]), 3)
        tensor([0, 2, 2, 3])
    """
    return torch.searchsorted(row, torch.arange(rows + 1, device=row.device))


def ranks_by_counting(
    score: Float[Tensor, "query gallery"], row: Int[Tensor, " pairs"], item: Int[Tensor, " pairs"]
) -> Int[Tensor, " pairs"]:
    r"""Rank of each item in its row, ties by position. For the CPU.

    .. math::
        \mathrm{rank}(p) = 1 + |\{j : s_j > s_p\}| + |\{j < p : s_j = s_p\}|

    Only what scores at least as high as the last item wanted is sorted, by value: numpy does that
    an order of magnitude faster than it sorts positions. One search then finds for each item how
    many score as high and how many score higher; ties are looked at where the two differ by more
    than the item itself.
    """
    scores, rows, items = score.numpy(), row.numpy(), item.numpy()
    wanted = scores[rows, items]
    bounds = np.stack([wanted, np.nextafter(wanted, np.inf, dtype=wanted.dtype)], axis=1).ravel()
    start = np.searchsorted(rows, np.arange(len(scores) + 1))
    lowest = np.minimum.reduceat(np.append(wanted, wanted.dtype.type(np.inf)), start[:-1]).tolist()
    place = (2 * start).tolist()  # of each row in `bounds`
    lower, total = np.empty(len(bounds), dtype=np.int64), np.zeros(len(scores), dtype=np.int64)

    def count_row(i: int) -> None:
        first, last = place[i], place[i + 1]
        if first < last:
            above = scores[i].compress(scores[i] >= lowest[i])  # three times as fast as [mask]
            above.sort()
            lower[first:last] = above.searchsorted(bounds[first:last])
            total[i] = len(above)

    for_each_row(count_row, scores.shape)
    at_least, higher = (total[rows, None] - lower.reshape(-1, 2)).T.copy()
    for i in np.unique(rows[at_least - higher > 1]):
        part = slice(start[i], start[i + 1])
        higher[part] += equal_before(scores[i], items[part])
    return torch.from_numpy(1 + higher)


def equal_before(
    score: Float[np.ndarray, " gallery"], items: Int[np.ndarray, " relevant"]
) -> Int[np.ndarray, " relevant"]:
    """How many items of the same score stand before each of `items`.

    Example:
        >>> equal_before(np.array([0.5, 0.9, 0.5, 0.5]), np.array([0, 1, 3]))
        array([0, 0, 2])
    """
    before = np.zeros(len(items), dtype=np.int64)
    for value in np.unique(score[items]):
        same = score[items] == value
        before[same] = np.searchsorted(np.flatnonzero(score == value), items[same])
    return before


def ranks_on_gpu(
    score: Float[Tensor, "query gallery"],
    row: Int[Tensor, " pairs"],
    item: Int[Tensor, " pairs"],
    start: Int[Tensor, " query_and_one"],
    longest: int | None = None,
) -> Int[Tensor, " pairs"]:
    """Ranks of the items of each row, ascending: by the fastest way."""
    if usable(score) and len(row):
        from nobackfill.ops.kernels.ranks import ascending_ranks, fits

        longest = longest or int(start.diff().max())
        if fits(score, longest):
            return ascending_ranks(score, item, start, longest)
    return in_order(ranks_by_sorting(score, row, item), row, score.shape[1])


def ranks_by_sorting(
    score: Float[Tensor, "query gallery"], row: Int[Tensor, " pairs"], item: Int[Tensor, " pairs"]
) -> Int[Tensor, " pairs"]:
    """Rank of each item in its row, ties by position. For a GPU: few large operations."""
    order = score.sort(dim=1, descending=True, stable=True).indices
    rank = torch.arange(1, score.shape[1] + 1, device=score.device).expand_as(order)
    ranks = torch.empty_like(order).scatter_(1, order, rank)
    return ranks[row, item]
