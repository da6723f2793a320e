"""Product quantisation: k-means centroids for each part of a vector."""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from nobackfill.errors import ConfigError
from nobackfill.ops.nearest import rows_per_block

MOST_ROWS_PER_CENTROID = 256  # more rows make k-means slower, but not better


def train_codebooks(
    vectors: Float[Tensor, "rows dim"],
    *,
    parts: int,
    centroids: int = 256,
    iterations: int = 10,
    starts: int = 2,
    engine: str = "torch",
    generator: torch.Generator | None = None,
) -> Float[Tensor, "parts centroids part_dim"]:
    """Finds the centroids of each part of the vectors by k-means, the best of several starts.

    All parts are clustered together, in blocks of rows. A centroid without rows keeps its position
    (faiss moves it; the engines differ only in this).

    Args:
        vectors: Training vectors; more than 256 rows per centroid are sampled.
        parts: Number of equal parts of a vector.
        centroids: Number of centroids of each part, at most the number of rows.
        iterations: Number of iterations of k-means.
        starts: Number of random starts; the result with the smallest error is kept.
        engine: "torch", or "faiss" if it is installed: the same steps from the same starts.
        generator: Random generator of the sample and the starts, on the CPU.

    Example:
        >>> line = torch.tensor([[0.0], [0.1], [5.0], [5.1]])
        >>> train_codebooks(line, parts=1, centroids=2).flatten().sort().values
        tensor([0.0500, 5.0500])
    """
    rows, dim = vectors.shape
    if parts < 1 or dim % parts:
        raise ConfigError(
            f"The number of parts is {parts}, but must be one that divides the {dim} dimensions of "
            f"the old vectors. Try {largest_split(dim, 32)}."
        )
    if min(centroids, starts) < 1 or iterations < 0:
        raise ConfigError(
            f"There are {centroids} centroids, {starts} starts and {iterations} iterations. Pass "
            f"at least one centroid and one start, and no negative iterations."
        )
    if engine not in ("torch", "faiss"):
        raise ConfigError(f'engine must be "torch" or "faiss", not {engine!r}.')
    # Draw a sample, and split it into parts.
    centroids = min(centroids, rows)
    most = centroids * MOST_ROWS_PER_CENTROID
    if rows > most:
        vectors = vectors[torch.randperm(rows, generator=generator)[:most].to(vectors.device)]
    split = vectors.unflatten(1, (parts, -1)).transpose(0, 1)  # (parts, rows, part_dim)
    # Cluster from several starts, and keep the best of each part.
    cluster = by_torch if engine == "torch" else by_faiss
    results = []
    for _ in range(starts):
        first = torch.randperm(len(vectors), generator=generator)[:centroids]
        results.append(cluster(split, split[:, first.to(vectors.device)], iterations=iterations))
    best = torch.stack([error for _, error in results]).argmin(dim=0)  # (parts)
    books = torch.stack([book for book, _ in results])  # (starts, parts, centroids, part_dim)
    return books[best, torch.arange(parts, device=best.device)]


def by_torch(
    split: Float[Tensor, "parts rows part_dim"],
    start: Float[Tensor, "parts centroids part_dim"],
    *,
    iterations: int,
) -> tuple[Float[Tensor, "parts centroids part_dim"], Float[Tensor, " parts"]]:
    """Runs Lloyd's iterations for all parts; returns centroids and sums of squared distances."""
    parts, rows, part_dim = split.shape
    book = start.clone()
    block = rows_per_block(parts * book.shape[1] * split.element_size())
    for _ in range(iterations):
        nearest, _ = assign(split, book, block=block)
        sums = torch.zeros_like(book).scatter_add(
            1, nearest[:, :, None].expand(-1, -1, part_dim), split
        )
        count = sums.new_zeros(book.shape[:2]).scatter_add(1, nearest, sums.new_ones(parts, rows))
        mean = sums / count.clamp(min=1)[:, :, None]
        book = torch.where(count[:, :, None] > 0, mean, book)
    return book, assign(split, book, block=block)[1]


def assign(
    split: Float[Tensor, "parts rows part_dim"],
    book: Float[Tensor, "parts centroids part_dim"],
    *,
    block: int,
) -> tuple[Int[Tensor, "parts rows"], Float[Tensor, " parts"]]:
    """Returns the nearest centroid of every row, and the sums of squared distances to them."""
    half_length = book.square().sum(dim=-1)[:, None, :] / 2
    nearest, error = [], book.new_zeros(len(book))
    for rows in split.split(block, dim=1):
        gap, index = (half_length - rows @ book.transpose(1, 2)).min(dim=-1)
        error += (2 * gap + rows.square().sum(dim=-1)).clamp(min=0).sum(dim=-1)
        nearest.append(index)
    return torch.cat(nearest, dim=1), error


def by_faiss(
    split: Float[Tensor, "parts rows part_dim"],
    start: Float[Tensor, "parts centroids part_dim"],
    *,
    iterations: int,
) -> tuple[Float[Tensor, "parts centroids part_dim"], Float[Tensor, " parts"]]:
    """Does the same as `by_torch` with faiss, part by part."""
    try:
        import faiss
    except ImportError:
        raise ConfigError(
            'engine="faiss" requires faiss, which is not installed. Leave the engine at "torch", '
            "which takes the same steps, or install faiss-cpu."
        ) from None
    books, errors = [], []
    for rows, first in zip(split.cpu().float(), start.cpu().float(), strict=True):
        kmeans = faiss.Kmeans(
            rows.shape[1],
            len(first),
            niter=iterations,
            min_points_per_centroid=1,
            max_points_per_centroid=2 * MOST_ROWS_PER_CENTROID,
        )
        kmeans.train(rows.contiguous().numpy(), init_centroids=first.contiguous().numpy())
        book = torch.from_numpy(kmeans.centroids)
        books.append(book)
        errors.append(assign(rows[None], book[None], block=len(rows))[1][0])
    return torch.stack(books).to(split), torch.stack(errors).to(split)


def largest_split(dim: int, most: int) -> int:
    """Returns the largest number of equal parts with at least two dimensions, at most `most`.

    Example:
        >>> largest_split(256, 32), largest_split(6, 32), largest_split(7, 32)
        (32, 3, 1)
    """
    return next(parts for parts in range(min(most, max(dim // 2, 1)), 0, -1) if dim % parts == 0)


def centroid_log_shares(
    vectors: Float[Tensor, "rows dim"],
    books: Float[Tensor, "parts centroids part_dim"],
    *,
    sharpness: float,
) -> Float[Tensor, "rows parts centroids"]:
    r"""Returns the log share of each centroid, for each part of a vector.

    .. math::
        \log \mathrm{softmax}_k \bigl(s \cos(v_j, a_{jk})\bigr)

    Example:
        >>> books = torch.eye(2)[None]
        >>> centroid_log_shares(torch.tensor([[3.0, 3.0]]), books, sharpness=10.0).exp()
        tensor([[[0.5000, 0.5000]]])
    """
    parts = F.normalize(vectors.unflatten(1, (len(books), -1)), dim=-1)
    cosine = torch.einsum("rpd,pcd->rpc", parts, F.normalize(books, dim=-1))
    return (sharpness * cosine).log_softmax(dim=-1)
