"""Exact nearest neighbours, computed in blocks on CPU or GPU."""

import math
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from nobackfill.errors import DataError
from nobackfill.ops.matmul import ALIGNED, check_precision, products_with

BLOCK_BYTES = 64 * 2**20  # of scores in a block on the CPU
GPU_BLOCK_BYTES = 4 * 2**30  # of scores in a block on a GPU, at most
CACHE_BYTES = 3 * 2**19  # of scores that stay in the cache of a core
FEWEST_GROUPS = 512  # groups of a row's scores, see `floor_of_best`
SMALLEST_GROUP = 4  # scores per group; smaller groups save no time
LONG_ROW = 65_536  # scores; threads save time for rows from this length on

Block = tuple[int, Float[Tensor, "rows gallery"]]  # number of the first row, and the scores


def nearest(
    query: Float[Tensor, "query dim"],
    gallery: Float[Tensor, "gallery gallery_dim"],
    k: int,
    *,
    exclude_self: bool = False,
    precision: str = "float32",
    block: int | None = None,
) -> tuple[Int[Tensor, "query neighbors"], Float[Tensor, "query neighbors"]]:
    r"""Finds for each query the `k` gallery rows with the largest inner products, best first.

    .. math::
        \mathrm{score}_{ij} = q_i^\top g_j

    The search is exact: it computes every score, in blocks of queries. Rows of equal score come in
    the order of the gallery, also at the cut after `k`. Scores are equal if their floats are; two
    copies of one vector may differ in the last bit.

    Args:
        query: One row per query. With vectors of unit length, the score is a cosine.
        gallery: One row per item, on the same device. Half precision is computed in float32.
        k: Number of neighbours; a smaller gallery is returned whole.
        exclude_self: Whether query `i` is gallery row `i`, which is then not its own neighbour.
        precision: Precision of the factors, see `inner_products`. Less than "float32" is faster on
            a GPU, and may swap neighbours of almost equal score.
        block: Number of queries per block; by default as many as `rows_per_block`.

    Returns:
        Rows of the gallery, and their scores.

    Raises:
        DataError: If the two do not fit together, are empty, contain NaN, or `k` is below 1.

    Example:
        >>> query = torch.tensor([[1.0, 0.0]])
        >>> gallery = torch.tensor([[0.0, 1.0], [0.6, 0.8], [1.0, 0.0]])
        >>> nearest(query, gallery, k=2)
        (tensor([[2, 1]]), tensor([[1.0000, 0.6000]]))
    """
    if k < 1:
        raise DataError(f"The number of neighbours k is {k}. Pass k=1 or more.")
    check_precision(precision)
    query, gallery = comparable(query, gallery, exclude_self=exclude_self)
    check_finite(query, "query")
    check_finite(gallery, "gallery")
    return nearest_checked(
        query, gallery, k, exclude_self=exclude_self, precision=precision, block=block
    )


def nearest_checked(
    query: Float[Tensor, "query dim"],
    gallery: Float[Tensor, "gallery dim"],
    k: int,
    *,
    exclude_self: bool,
    precision: str,
    unit: bool = False,
    block: int | None = None,
) -> tuple[Int[Tensor, "query neighbors"], Float[Tensor, "query neighbors"]]:
    """`nearest` for vectors that were checked; `unit` means that all have unit length."""
    k = min(k, len(gallery) - exclude_self)
    block = block or rows_per_block(len(gallery) * gallery.element_size(), query.device)
    indices = torch.empty(len(query), k, dtype=torch.int64, device=query.device)
    scores = torch.empty(len(query), k, dtype=query.dtype, device=query.device)
    if k == 0:
        return indices, scores
    for first, score in score_blocks(query, gallery, block, precision, unit=unit):
        if exclude_self:
            score.diagonal(first).fill_(-torch.inf)
        best = best_by_partition(score, k) if score.device.type == "cpu" else best_by_topk(score, k)
        indices[first : first + len(score)] = best
        scores[first : first + len(score)] = score.gather(1, best)
    return indices, scores


def best_by_partition(
    score: Float[Tensor, "query gallery"], k: int
) -> Int[Tensor, "query neighbors"]:
    """Returns the positions of the `k` largest of each row, best first, ties by position. CPU only.

    It finds a floor that at least `k` values of a row reach, and few more, and sorts the values
    that reach it. It processes as many rows at a time as fit into the cache of a core.
    """
    best = np.empty((len(score), k), dtype=np.int64)
    scores = score.numpy()
    parts = row_parts(score)

    def sort_part(number: int) -> None:
        rows = scores[parts[number]]
        best[parts[number]] = sort_reaching(rows, floor_of_best(rows, k), k)

    for_each_row(sort_part, (len(parts), scores[parts[0]].size))
    return torch.from_numpy(best)


def row_parts(score: Float[Tensor, "query gallery"]) -> list[slice]:
    """Splits the rows into parts that fit into the cache of a core."""
    size = max(1, CACHE_BYTES // (score.shape[1] * score.element_size()))
    return [slice(first, first + size) for first in range(0, len(score), size)]


def floor_of_best(rows: Float[np.ndarray, "query gallery"], k: int) -> Float[np.ndarray, " query"]:
    """Returns a value that at least `k` of each row reach: the `k`-th largest maximum of a group.

    The `k` best of a row seldom share a group: with five groups for each of them, about 1.1 k
    values reach the floor. Adjacent gallery items, which are often similar, are never in one group.
    In short rows, each value is its own group, and the floor is the `k`-th largest value.
    """
    groups = max(FEWEST_GROUPS, 5 * k + -5 * k % ALIGNED)
    if groups * SMALLEST_GROUP <= rows.shape[1]:
        rows = group_maxima(rows, groups)
    last = rows.shape[1] - k
    floor: np.ndarray = np.partition(rows, last, axis=1)[:, last]
    return floor


def group_maxima(
    rows: Float[np.ndarray, "query gallery"], groups: int
) -> Float[np.ndarray, "query groups"]:
    """Returns the maximum of each group of a row; column `j` is in group `j % groups`."""
    whole = rows.shape[1] // groups * groups
    maxima: np.ndarray = rows[:, :whole].reshape(len(rows), -1, groups).max(axis=1)
    rest = rows[:, whole:]
    first = maxima[:, : rest.shape[1]]
    np.maximum(first, rest, out=first)
    return maxima


def sort_reaching(
    rows: Float[np.ndarray, "query gallery"], floor: Float[np.ndarray, " query"], k: int
) -> Int[np.ndarray, "query neighbors"]:
    """Returns the positions of the `k` largest of each row, among those that reach its floor."""
    # Find the values that reach the floor, row by row.
    columns = rows.shape[1]
    reaching = np.flatnonzero(rows >= floor[:, None])
    start = np.searchsorted(reaching, columns * np.arange(len(rows) + 1))
    count = np.diff(start)
    if count.min() < k:
        raise DataError(
            "Some scores are NaN: the vectors are so long that their products overflow. Make them "
            "unit length first."
        )
    # Move them to the left of a narrow matrix, and sort its rows.
    row = np.repeat(np.arange(len(rows)), count)
    column = reaching - columns * row
    place = row, np.arange(len(reaching)) - start[row]
    if rows.dtype == np.float32:
        key = np.full((len(rows), count.max()), np.iinfo(np.int64).max)
        key[place] = descending_keys(rows[row, column], column)
        key.sort(axis=1)  # many times as fast as argsort
        return key[:, :k] & 0xFFFFFFFF
    value = np.full((len(rows), count.max()), np.inf)
    value[place] = -rows[row, column]
    position = np.zeros(value.shape, dtype=np.int64)
    position[place] = column
    return np.take_along_axis(position, value.argsort(axis=1, kind="stable")[:, :k], axis=1)


def descending_keys(
    score: Float[np.ndarray, " some"], column: Int[np.ndarray, " some"]
) -> Int[np.ndarray, " some"]:
    """Returns integers that sort float32 scores, the highest first, then columns.

    The lower 32 bits of each are its column.
    """
    bits = (score + np.float32(0)).view(np.int32)  # minus zero is zero
    ascending = bits ^ ((bits >> 31) & 0x7FFFFFFF)  # in the order of the floats
    keys: np.ndarray = (~ascending.astype(np.int64) << 32) | column
    return keys


def best_by_topk(score: Float[Tensor, "query gallery"], k: int) -> Int[Tensor, "query neighbors"]:
    """Returns the positions of the `k` largest of each row, best first, ties by position. For GPUs.

    `topk` leaves the order of ties open. One more value shows whether the cut after `k` splits a
    tie; only such rows are sorted whole.
    """
    value, best = score.topk(min(k + 1, score.shape[1]), dim=1)
    best = best[:, :k].sort(dim=1).values
    order = score.gather(1, best).sort(dim=1, descending=True, stable=True).indices
    best = best.gather(1, order)
    if value.shape[1] > k:
        cut = value[:, k - 1] == value[:, k]
        best[cut] = score[cut].sort(dim=1, descending=True, stable=True).indices[:, :k]
    return best


def comparable(
    query: Float[Tensor, "query dim"],
    gallery: Float[Tensor, "gallery gallery_dim"],
    *,
    exclude_self: bool = False,
) -> tuple[Float[Tensor, "query dim"], Float[Tensor, "gallery dim"]]:
    """Checks that the two can be multiplied, and returns them in one dtype, at least float32."""
    for name, vectors in (("query", query), ("gallery", gallery)):
        if len(vectors) == 0:
            raise DataError(f"the {name} has 0 rows. Check the file or the split it comes from.")
    if query.shape[1] != gallery.shape[1]:
        raise DataError(
            f"Dimensions differ: the query has {query.shape[1]} and the gallery "
            f"{gallery.shape[1]}. Map one into the space of the other, e.g. with a fitted head."
        )
    if query.device != gallery.device:
        raise DataError(
            f"Devices differ: the query is on {query.device} and the gallery on {gallery.device}. "
            f"Move one with `.to(...)`."
        )
    if exclude_self and len(query) != len(gallery):
        raise DataError(
            f"exclude_self means that query i is gallery item i, but there are {len(query)} "
            f"queries and {len(gallery)} gallery items. Pass the same items twice, or leave "
            f"exclude_self out."
        )
    dtype = torch.promote_types(torch.promote_types(query.dtype, gallery.dtype), torch.float32)
    return query.detach().to(dtype), gallery.detach().to(dtype)


def check_finite(vectors: Float[Tensor, "rows dim"], name: str) -> None:
    """Raises if values are NaN or infinite, and names the first such row."""
    if all_finite(vectors):
        return
    bad = ~vectors.isfinite().all(dim=1)
    raise DataError(
        f"{name} vectors must be finite, but {int(bad.sum())} of {len(vectors)} contain NaN or "
        f"infinite values, the first is row {int(bad.nonzero()[0])}. Embed these items again, or "
        f"drop them."
    )


def all_finite(vectors: Float[Tensor, "rows dim"]) -> bool:
    """Whether all values are finite. A finite sum proves it, an infinite one may be an overflow."""
    return math.isfinite(vectors.sum().item()) or bool(vectors.isfinite().all())


def score_blocks(
    query: Float[Tensor, "query dim"],
    gallery: Float[Tensor, "gallery dim"],
    block: int,
    precision: str = "float32",
    *,
    unit: bool = False,
) -> Iterator[Block]:
    """Yields the first row and the scores of each block of queries; see `products_with`.

    All blocks share one buffer: the scores are valid until the next block.
    """
    products = products_with(gallery, block, len(query), precision, unit=unit)
    for first in range(0, len(query), block):
        yield first, products(query[first : first + block])


def rows_per_block(bytes_per_row: int, device: torch.device | None = None) -> int:
    """Returns how many rows fit into 64 MB; on a GPU, into 4 GB and an eighth of its memory."""
    if device is None or device.type != "cuda":
        return max(1, BLOCK_BYTES // bytes_per_row)
    memory = torch.cuda.get_device_properties(device).total_memory
    rows = max(1, min(GPU_BLOCK_BYTES, memory // 8) // bytes_per_row)
    return rows - rows % 128 if rows > 128 else rows  # the tile size of products


def for_each_row(function: Callable[[int], None], shape: tuple[int, int]) -> None:
    """Calls `function` with the number of each row, in torch's number of threads.

    NumPy releases Python's lock while it works on a row. Short rows use only this thread, because
    starting others takes longer.
    """
    rows, columns = shape
    if columns < LONG_ROW:
        for row in range(rows):
            function(row)
        return
    workers = min(torch.get_num_threads(), rows)
    parts = [range(first, rows, workers) for first in range(workers)]
    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(lambda part: list(map(function, part)), parts))  # raises their exceptions
