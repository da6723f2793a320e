r"""Sums over all classes while they stream by: no product of a batch with them is ever written.

In the manner of flash attention (Dao et al., NeurIPS 2022, https://arxiv.org/abs/2205.14135).

Factors are of float16, which keeps as many bits as TF32 does, ten after the point; unit vectors
never leave its range. Sums are of float32.
"""

import math
from functools import cache
from typing import NamedTuple, no_type_check

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Float16, Int
from torch import Tensor

from nobackfill.ops.kernels.normalize import width_for

WIDEST = 256  # dimensions; a row is held whole
MOST_CLASSES = 2**31 - 128  # counted in 32 bits, those of a tile beyond the last one, too
MOST_MEMORY = 8  # classes as halves take one part in so many of a GPU's, at most
OLDEST = (9, 0)  # capability of a GPU; older ones were not measured
BUSY = 0.9  # of all processors, at least
LOG2_E = math.log2(math.e)  # powers of 2 are faster than those of e


class Tiles(NamedTuple):
    """How much a program looks at together.

    Attributes:
        rows: Embeddings.
        columns: Classes.
        warps: Groups of 32 threads.
        stages: Tiles of classes that are here or on their way.
    """

    rows: int
    columns: int
    warps: int
    stages: int


TILES = (Tiles(128, 64, 8, 3), Tiles(64, 64, 4, 2), Tiles(64, 32, 4, 2))  # the fastest first


class Chip(NamedTuple):
    """What of a GPU decides how it is used.

    Attributes:
        capability: As NVIDIA counts it.
        processors: How many programs run at a time.
        shared: Bytes that a program can hold beside its registers.
        memory: Bytes of all.
    """

    capability: tuple[int, int]
    processors: int
    shared: int
    memory: int


INTERPRETED = Chip((0, 0), processors=4, shared=2**20, memory=2**40)


@cache
def chip(device: torch.device) -> Chip:
    """What a GPU is like; where kernels are interpreted, something small."""
    if device.type != "cuda":
        return INTERPRETED
    found = torch.cuda.get_device_properties(device)
    capability = (found.major, found.minor) if torch.version.hip is None else (0, 0)
    shared = getattr(found, "shared_memory_per_block_optin", 48 * 2**10)
    return Chip(capability, found.multi_processor_count, shared, found.total_memory)


def fits(new: Float[Tensor, "batch dim"], classes: Float[Tensor, "classes dim"]) -> bool:
    """Whether `stream` takes such embeddings and classes where they are."""
    number, dim = classes.shape
    gpu = chip(new.device)
    return (
        dim <= WIDEST
        and number <= MOST_CLASSES
        and gpu.capability >= OLDEST
        and tiles_for(width_for(dim), gpu.shared) is not None
        and 2 * number * width_for(dim) <= gpu.memory // MOST_MEMORY
    )


def tiles_for(width: int, shared: int) -> Tiles | None:
    """The first of `TILES` that a program has room for, if any.

    Example:
        >>> tiles_for(256, shared=227 * 2**10)
        Tiles(rows=128, columns=64, warps=8, stages=3)
        >>> tiles_for(256, shared=99 * 2**10)
        Tiles(rows=64, columns=64, warps=4, stages=2)
        >>> tiles_for(256, shared=48 * 2**10) is None
        True
    """
    for tiles in TILES:
        if (tiles.rows + tiles.stages * tiles.columns) * width * 2 <= shared:
            return tiles
    return None


def parts_for(blocks: int, tiles: int, processors: int) -> int:
    """Into how many parts classes are cut, so that each wave of programs keeps processors busy.

    As few waves as it takes, and as many parts as fit into these.

    Args:
        blocks: Of rows; each meets each part in a program of its own.
        tiles: Of classes; a part has at least one.
        processors: How many programs run at a time, in a wave.

    Example:
        >>> [parts_for(blocks, 10_000, processors=132) for blocks in (1, 2, 32, 70, 132, 140)]
        [132, 66, 4, 7, 1, 6]
        >>> parts_for(2, 5, processors=132)
        5
    """
    room = processors
    while blocks * (room // blocks) < BUSY * room:
        room += processors
    return min(room // blocks, tiles)


def stream(
    e: Float16[Tensor, "batch width"],
    classes: Float16[Tensor, "classes width"],
    labels: Int[Tensor, " batch"],
    temperature: float,
    dim: int,
    *,
    gradient: bool = True,
    parts: int | None = None,
    tiles: Tiles | None = None,
) -> tuple[Float[Tensor, "batch parts"], Float[Tensor, "parts batch {dim}"] | None]:
    r"""Sums over all classes but the own one, in parts that are still to be added up.

    .. math::
        z_i = \sum_{c \ne y_i} w_{ic}, \qquad a_i = \sum_{c \ne y_i} w_{ic}\, p_c, \qquad
        w_{ic} = \exp\bigl((e_i^\top p_c - 1) / \tau\bigr)

    The slow twin is `allclasses.class_sums`. Parts are those of `parts_for`; nothing depends on
    which of them is done first.

    Args:
        e: Unit embeddings, of `unit_halves`.
        classes: :math:`p`, of `unit_halves`.
        labels: The own classes, :math:`y`, without gaps in memory; what is no class leaves none
            out.
        temperature: :math:`\tau`.
        dim: How many numbers of a row are not padding.
        gradient: Whether :math:`a` is wanted.
        parts: At most so many, else as many as suit the GPU.
        tiles: Else those that suit the GPU.

    Returns:
        Parts of :math:`z` and, if wanted, of :math:`a`.
    """
    batch, width = e.shape
    number = len(classes)
    gpu = chip(e.device)
    tiles = tiles or tiles_for(width, gpu.shared)
    assert tiles is not None, "`fits` was not asked"
    blocks, steps = triton.cdiv(batch, tiles.rows), triton.cdiv(number, tiles.columns)
    parts = min(parts or parts_for(blocks, steps, gpu.processors), steps)
    share = triton.cdiv(steps, parts) * tiles.columns
    parts = triton.cdiv(number, share)
    sums = torch.empty(batch, parts, dtype=torch.float32, device=e.device)
    pulls = sums.new_empty(parts, batch, dim) if gradient else None
    stream_kernel[(blocks, parts)](
        e, classes, labels, sums, pulls, batch, number, share, dim, LOG2_E / temperature,
        width=width, rows=tiles.rows, columns=tiles.columns, stages=tiles.stages,
        num_warps=tiles.warps,
    )  # fmt: skip
    return sums, pulls


@triton.jit
@no_type_check
def stream_kernel(
    e, classes, labels, sums, pulls, batch, number, share, dim, sharpness,
    width: tl.constexpr, rows: tl.constexpr, columns: tl.constexpr, stages: tl.constexpr,
):  # fmt: skip
    """Some rows and one part of `stream`.

    Weights are kept relative to that of the largest cosine so far, `top`, which weighs 2**15:
    float16 then reaches 2**39 times as low.
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
    scale = tl.exp2((top - 1.0) * sharpness)  # down to 2**-115: 2**-15 comes off before
    tl.store(sums + place * tl.num_programs(1) + part, z * (1.0 / 32768.0) * scale, mask=there)
    if pulls is not None:
        a_place = pulls + (part.to(tl.int64) * batch + place[:, None]) * dim + at[None, :]
        a = a * (1.0 / 32768.0) * scale[:, None]
        tl.store(a_place, a, mask=there[:, None] & (at < dim)[None, :])
