"""Synthetic vectors and blockwise matrix products: inputs and lower bounds of the suites."""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from nobackfill.ops.matmul import empty_products, inner_products
from nobackfill_bench.speed.case import Work

BLOCK = {"cuda": 10**9, "cpu": 64 * 2**20}  # bytes of one block of a product
ONE_GROUP = 20  # classes


def crowded(
    classes: int, dim: int, device: torch.device, *, seed: int = 0
) -> Float[Tensor, "classes dim"]:
    """Returns unit rows in clusters of twenty, as crowded as typical class means."""
    generator = torch.Generator(device).manual_seed(seed)
    groups = -(-classes // ONE_GROUP)
    centre = F.normalize(torch.randn(groups, dim, generator=generator, device=device), dim=-1)
    own = F.normalize(torch.randn(classes, dim, generator=generator, device=device), dim=-1)
    rows = 0.75 * centre.repeat_interleave(ONE_GROUP, dim=0)[:classes] + 0.6 * own
    return F.normalize(rows, dim=-1)


def dense(
    classes: int, dim: int, device: torch.device, *, seed: int = 0
) -> Float[Tensor, "classes dim"]:
    """Returns unit rows with a common direction: all cosines are about 0.6."""
    generator = torch.Generator(device).manual_seed(seed)
    own = F.normalize(torch.randn(classes, dim, generator=generator, device=device), dim=-1)
    common = F.normalize(torch.randn(dim, generator=generator, device=device), dim=0)
    return F.normalize(own + 1.5**0.5 * common, dim=-1)


def product_in_blocks(
    rows: Float[Tensor, "rows dim"],
    columns: Float[Tensor, "columns dim"],
    *,
    back: bool = False,
    block_bytes: int | None = None,
    aligned: bool = False,
) -> Work:
    """Returns a function that computes all inner products of rows and columns, in blocks.

    It is a lower bound for everything that needs all of them. Products of bfloat16 are written in
    float32, because rounded products would have many ties. The function returns the last block, or
    with `back` the product with the columns.

    Args:
        rows: Left matrix.
        columns: Right matrix.
        back: Whether to multiply each block with the columns again, as a gradient does.
        block_bytes: Bytes of a block; about 1 GB on a GPU by default.
        aligned: Whether to align rows and sizes for cache lines and tensor cores, as ours does.
    """
    block_bytes = block_bytes or BLOCK.get(rows.device.type, BLOCK["cpu"])
    dtype = torch.float32 if rows.dtype == torch.bfloat16 else rows.dtype
    number = min(len(rows), max(1, block_bytes // (len(columns) * dtype.itemsize)))
    buffers = list[Tensor]()  # created at the first call, so that they do not count as inputs

    def product() -> Tensor:
        if not buffers:
            like = rows if dtype == rows.dtype else rows[:0].to(dtype)
            whole = empty_products(like, number, len(columns))
            buffers.append(whole if aligned else like.new_empty(number, len(columns)))
            buffers.append(torch.empty_like(rows) if back else rows.new_empty(0))
        for first in range(0, len(rows), number):
            part = rows[first : first + number]
            out = buffers[0][: len(part)]
            if aligned:
                precision = "float32" if dtype == rows.dtype else "bfloat16"
                scores = inner_products(part, columns, out, precision)
            elif dtype == rows.dtype:
                scores = torch.mm(part, columns.T, out=out)
            else:
                scores = torch.mm(part, columns.T, out_dtype=dtype, out=out)
            if back:
                torch.mm(scores, columns, out=buffers[1][first : first + number])
        return buffers[1] if back else scores

    return product


def replayed(work: Work) -> Work:
    """Returns the work as a CUDA graph: the time of its kernels without that of launching them."""
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for _ in range(3):
            work()
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph.replay
