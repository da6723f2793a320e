r"""Softmax sums over all classes in one pass, without a batch x classes tensor, for TF32 users.

Similar to flash attention (Dao et al., NeurIPS 2022, https://arxiv.org/abs/2205.14135). The factors
are unit vectors in float16, which keeps as many bits of them as TF32 (10); sums are in float32.
"""

import math
from typing import no_type_check

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Float16, Int
from torch import Tensor

ROWS, COLUMNS = 128, 64  # embeddings and classes per tile
WARPS, STAGES = 8, 3  # groups of 32 threads; tiles of classes that are loaded ahead
WIDEST = 256  # dimensions; a program holds whole rows
MOST_CLASSES = 2**31 - COLUMNS  # counted in 32 bits
MOST_MEMORY = 8  # classes in float16 take at most 1/8 of the GPU's memory
OLDEST = (9, 0)  # compute capability; older GPUs were not measured
HELD = 1024  # numbers per program of `unit_halves`
LOG2_E = math.log2(math.e)  # powers of 2 are faster than those of e


def fits(e: Float[Tensor, "batch dim"], classes: Float[Tensor, "classes dim"]) -> bool:
    """Whether `streamed_class_sums` supports these shapes on their GPU."""
    number, dim = classes.shape
    gpu = torch.cuda.get_device_properties(e.device)
    width = width_of(dim)
    shared = getattr(gpu, "shared_memory_per_block_optin", 0)
    return (
        e.dtype == torch.float32
        and dim <= WIDEST
        and number <= MOST_CLASSES
        and (gpu.major, gpu.minor) >= OLDEST
        and 2 * (ROWS + STAGES * COLUMNS) * width <= shared
        and 2 * number * width <= gpu.total_memory // MOST_MEMORY
    )


def width_of(dim: int) -> int:
    """Returns the length of a padded row: a power of 2, at least 16 for tensor cores."""
    return max(16, 1 << (dim - 1).bit_length())


def streamed_class_sums(
    e: Float[Tensor, "batch dim"],
    labels: Int[Tensor, " batch"],
    classes: Float[Tensor, "classes dim"],
    temperature: float,
    *,
    gradient: bool = True,
    parts: int | None = None,
) -> tuple[Float[Tensor, " batch"], Float[Tensor, "batch dim"] | None]:
    """Computes the same as `ops.softmax_contrast.class_sums`, from factors in float16.

    Programs take one part of the classes each, by default as many parts as keep the GPU busy.
    """
    batch, dim = e.shape
    number = len(classes)
    blocks, tiles = triton.cdiv(batch, ROWS), triton.cdiv(number, COLUMNS)
    if parts is None:
        processors = torch.cuda.get_device_properties(e.device).multi_processor_count
        parts = max(1, processors // blocks)
    share = triton.cdiv(tiles, min(parts, tiles)) * COLUMNS
    parts = triton.cdiv(number, share)
    sums = e.new_empty(parts, batch)
    pulls = e.new_empty(parts, batch, dim) if gradient else None
    stream_kernel[(blocks, parts)](
        unit_halves(e), unit_halves(classes), labels.contiguous(), sums, pulls,
        batch, number, share, dim, LOG2_E / temperature,
        width=width_of(dim), rows=ROWS, columns=COLUMNS, stages=STAGES, num_warps=WARPS,
    )  # fmt: skip
    return sums.sum(dim=0), None if pulls is None else pulls.sum(dim=0)


def unit_halves(x: Float[Tensor, "rows dim"]) -> Float16[Tensor, "rows width"]:
    """Returns the rows at unit length in float16, padded with zeros to `width_of`."""
    rows, dim = x.shape
    width = width_of(dim)
    out = x.new_empty(rows, width, dtype=torch.float16)
    many = max(1, HELD // width)
    unit_halves_kernel[(triton.cdiv(rows, many),)](
        x, *x.stride(), out, rows, dim, width=width, many=many
    )
    return out


@triton.jit
@no_type_check
def unit_halves_kernel(
    x, row_stride, column_stride, out, rows, dim, width: tl.constexpr, many: tl.constexpr
):  # fmt: skip
    """Some rows of `unit_halves`."""
    row = tl.program_id(0).to(tl.int64) * many + tl.arange(0, many)
    column = tl.arange(0, width)
    there = (row < rows)[:, None]
    place = x + row[:, None] * row_stride + column[None, :].to(tl.int64) * column_stride
    value = tl.load(place, mask=there & (column < dim)[None, :], other=0.0).to(tl.float32)
    length = tl.sqrt(tl.sum(value * value, axis=1))
    half = (value / tl.maximum(length, 1e-12)[:, None]).to(tl.float16)
    tl.store(out + row[:, None] * width + column[None, :], half, mask=there)


@triton.jit
@no_type_check
def stream_kernel(
    e, classes, labels, sums, pulls, batch, number, share, dim, sharpness,
    width: tl.constexpr, rows: tl.constexpr, columns: tl.constexpr, stages: tl.constexpr,
):  # fmt: skip
    """Sums of some rows over one part of the classes.

    Weights are relative to that of the largest cosine so far, `top`, which weighs 2**15: float16
    then reaches down to 2**-39 of it.
    """
    row = tl.program_id(0) * rows + tl.arange(0, rows)
    part = tl.program_id(1)
    at = tl.arange(0, width)
    there = row < batch
    place = row.to(tl.int64)
    u = tl.load(e + place[:, None] * width + at[None, :], mask=there[:, None], other=0.0)
    own = tl.load(labels + row, mask=there, other=-1).to(tl.int64)
    own = tl.where((own >= 0) & (own < number), own, -1).to(tl.int32)
    top = tl.full((rows,), -2.0, tl.float32)
    z = tl.zeros((rows,), tl.float32)
    if pulls is not None:
        a = tl.zeros((rows, width), tl.float32)
    begin = part * share
    end = begin + tl.minimum(share, number - begin)
    for first in tl.range(begin, end, columns, num_stages=stages):
        column = first + tl.arange(0, columns)
        inside = column < end
        p_place = classes + column[:, None].to(tl.int64) * width + at[None, :]
        p = tl.load(p_place, mask=inside[:, None], other=0.0)
        cosine = tl.dot(u, tl.trans(p))
        counts = (column[None, :] != own[:, None]) & inside[None, :]
        cosine = tl.where(counts, cosine, float("-inf"))
        higher = tl.maximum(top, tl.max(cosine, axis=1))
        shrink = tl.exp2((top - higher) * sharpness)
        w = tl.exp2(cosine * sharpness - (higher * sharpness - 15.0)[:, None])
        z = z * shrink + tl.sum(w, axis=1)
        if pulls is not None:
            a = tl.dot(w.to(tl.float16), p, a * shrink[:, None])
        top = higher
    scale = tl.exp2((top - 1.0) * sharpness)  # as low as 2**-115, so 2**-15 is taken off before
    place += part.to(tl.int64) * batch
    tl.store(sums + place, z * (1.0 / 32768.0) * scale, mask=there)
    if pulls is not None:
        a = a * (1.0 / 32768.0) * scale[:, None]
        a_place = pulls + place[:, None] * dim + at[None, :]
        tl.store(a_place, a, mask=there[:, None] & (at < dim)[None, :])
