"""Near rows among very many vectors, searched within cells of k-means instead of all rows."""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor

from nobackfill.ops.kmeans import assign, train_codebooks

ROWS_AT_A_TIME = 4096  # rows of a cell that are compared with the whole cell at once
ASSIGNED = 2**14  # rows that are assigned to cells at once
PER_CELL = 64  # rows on which k-means runs, for each cell
ITERATIONS = 4  # of k-means; more make cells only a little more even

Rows = Int[Tensor, " _"]


def near_in_cells(
    units: Float[Tensor, "rows dim"],
    k: int,
    threshold: float,
    *,
    cells: int | None = None,
) -> tuple[Int[Tensor, "rows k"], tuple[Rows, Rows]]:
    r"""Finds near rows in the cell of each row: its neighbours, and its near-duplicates.

    K-means divides the rows into :math:`\sqrt{N}` cells, and a row is compared with the rows of its
    own cell only. This takes about :math:`2 N^{3/2}` products in place of :math:`N^2`, and misses
    near rows beyond the border of a cell.

    Args:
        units: Vectors at unit length.
        k: Number of neighbours.
        threshold: Cosine above which two rows are near-duplicates. They are no neighbours.
        cells: Number of cells; by default the square root of the number of rows.

    Returns:
        The neighbours of each row, best first, and the near-duplicates: first and second row of
        each pair, once. Missing neighbours of a row, in a cell of few rows, are the row itself.
    """
    cells = cells or max(1, math.isqrt(len(units)))
    # Divide the rows into cells.
    generator = torch.Generator().manual_seed(0)
    sample = torch.randperm(len(units), generator=generator)[: cells * PER_CELL].to(units.device)
    book = train_codebooks(
        units[sample].float(),
        parts=1,
        centroids=cells,
        iterations=ITERATIONS,
        starts=1,
        generator=generator,
    )
    parts = units.split(ASSIGNED)  # half precision is converted part by part
    cell = torch.cat([assign(rows[None].float(), book, block=ASSIGNED)[0][0] for rows in parts])
    order = cell.argsort(stable=True)
    counts = cell.bincount(minlength=cells).tolist()

    # Compare the rows of each cell. A row is its own neighbour where it has no other.
    own = torch.arange(len(units), dtype=torch.int32, device=units.device)
    neighbor = own[:, None].repeat(1, k)
    left, right = [], []
    for rows in order.split(counts):
        for part in rows.split(ROWS_AT_A_TIME):
            cosine = units[part].float() @ units[rows].float().T
            row, other = (cosine > threshold).nonzero().unbind(1)
            once = part[row] < rows[other]
            left.append(part[row[once]])
            right.append(rows[other[once]])
            cosine.masked_fill_(cosine > threshold, -torch.inf)
            value, place = cosine.topk(min(k, len(rows)), dim=1)
            best = torch.where(value.isinf(), part[:, None], rows[place])
            neighbor[part, : best.shape[1]] = best.int()
    return neighbor, (torch.cat(left), torch.cat(right))
