"""Ranks of the relevant items of each query, from scores.

A query has few relevant items. The rank of each is one plus the number of gallery items before it,
so the ranks are counted without sorting the whole gallery.
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
    """Returns the ranks of relevant items, ascending within each row, and their number per row.

    Both are on the device of the scores. With `complete` and `longest`, the CPU does not wait for
    a GPU.

    Args:
        score: Scores, higher is better; items of minus infinity are not in the ranking.
        row: Row of each relevant item, ascending.
        item: Column of each relevant item. Those that are not in the ranking are dropped.
        complete: Whether all of them are in the ranking.
        longest: Upper bound of the number of relevant items of a row.
    """
    row, item = send_to_device(score.device, row), send_to_device(score.device, item)
    if not complete:
        kept = score[row, item] > -torch.inf
        row, item = row[kept], item[kept]
    start = row_starts(row, len(score))
    if score.device.type == "cpu":
        ranks = sort_within_rows(ranks_by_counting(score, row, item), row, score.shape[1])
    else:
        ranks = ranks_on_gpu(score, row, item, start, longest)
    return ranks.to(torch.int32), start.diff()


def sort_within_rows(
    rank: Int[Tensor, " pairs"], row: Int[Tensor, " pairs"], most: int
) -> Int[Tensor, " pairs"]:
    """Sorts ranks from 1 to `most` within each row."""
    key = row * most  # ranks begin with 1, so rows do not mix
    ordered: Tensor = (key + rank).sort().values - key
    return ordered


def send_to_device(device: torch.device, indices: Int[Tensor, " pairs"]) -> Int[Tensor, " pairs"]:
    """Copies indices to a GPU without waiting for it, or to the CPU, waiting for the result."""
    if device.type == "cuda" and indices.device.type == "cpu":
        indices = indices.pin_memory()
    return indices.to(device, non_blocking=device.type != "cpu")


def send_to_cpu(*results: Tensor) -> Callable[[], list[Tensor]]:
    """Copies results to the CPU while a GPU continues. The returned function waits for them."""
    device = results[0].device
    if device.type != "cuda":
        return lambda: [result.cpu() for result in results]
    copies = [result.to("cpu", non_blocking=True) for result in results]
    copied = torch.cuda.Event()
    copied.record(torch.cuda.current_stream(device))

    def wait() -> list[Tensor]:
        copied.synchronize()
        return copies

    return wait


def row_starts(row: Int[Tensor, " pairs"], rows: int) -> Int[Tensor, " rows_and_one"]:
    """Returns where the pairs of each row begin, and where the last ones end."""
    return torch.searchsorted(row, torch.arange(rows + 1, device=row.device))


def ranks_by_counting(
    score: Float[Tensor, "query gallery"], row: Int[Tensor, " pairs"], item: Int[Tensor, " pairs"]
) -> Int[Tensor, " pairs"]:
    r"""Returns the rank of each item in its row, ties by position. CPU only.

    .. math::
        \mathrm{rank}(p) = 1 + |\{j : s_j > s_p\}| + |\{j < p : s_j = s_p\}|

    Only scores from the lowest relevant one on are sorted, by value: NumPy sorts values ten times
    as fast as positions. A search then counts for each item the scores that are as high, and those
    that are higher. Where these differ by more than the item itself, there are ties to count.
    """
    scores, rows, items = score.numpy(), row.numpy(), item.numpy()
    own = scores[rows, items]
    bounds = np.stack([own, np.nextafter(own, np.inf, dtype=own.dtype)], axis=1).ravel()
    start = np.searchsorted(rows, np.arange(len(scores) + 1))
    lowest = np.minimum.reduceat(np.append(own, own.dtype.type(np.inf)), start[:-1]).tolist()
    place = (2 * start).tolist()  # start of each row in `bounds`
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
    """Counts the items of equal score before each of `items`."""
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
    """Returns the ranks of the items of each row, ascending, by a kernel if there is one."""
    if usable(score) and len(row):
        from nobackfill.ops.kernels.ranks import ascending_ranks, fits

        longest = longest or int(start.diff().max())
        if fits(score, longest):
            return ascending_ranks(score, item, start, longest)
    return sort_within_rows(ranks_by_sorting(score, row, item), row, score.shape[1])


def ranks_by_sorting(
    score: Float[Tensor, "query gallery"], row: Int[Tensor, " pairs"], item: Int[Tensor, " pairs"]
) -> Int[Tensor, " pairs"]:
    """Returns the rank of each item in its row, ties by position. For GPUs."""
    order = score.sort(dim=1, descending=True, stable=True).indices
    rank = torch.arange(1, score.shape[1] + 1, device=score.device).expand_as(order)
    ranks = torch.empty_like(order).scatter_(1, order, rank)
    return ranks[row, item]
