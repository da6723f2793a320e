"""What a contrast with all classes does row by row, before and after its products of matrices."""

from dataclasses import dataclass
from typing import no_type_check

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Float16, Int
from torch import Tensor

from nobackfill.kernels.stream import width_for

MOST = 8192  # numbers of a row, which a program holds at once
PARTS = 64  # of a row's sum that are looked at together
PULLS = 8  # parts of a row's pull that are on their way at a time


def fits(new: Float[Tensor, "batch dim"]) -> bool:
    """Whether `unit_rows` takes such embeddings."""
    return new.shape[1] <= MOST


@dataclass(frozen=True)
class UnitRows:
    r"""Embeddings beside what each is drawn to, both of unit length.

    Attributes:
        e: The embeddings, :math:`u`.
        length: How long each was, :math:`l`.
        own: What each is drawn to, :math:`m`.
        cosine: :math:`u^\top m`.
        losses: Room for the loss of each.
    """

    e: Float[Tensor, "batch dim"]
    length: Float[Tensor, " batch"]
    own: Float[Tensor, "batch dim"]
    cosine: Float[Tensor, " batch"]
    losses: Float[Tensor, " batch"]


def unit_rows(
    new: Float[Tensor, "batch dim"],
    labels: Int[Tensor, " batch"],
    moved: Float[Tensor, "classes dim"],
    *,
    zeros: Float[Tensor, "1 batch dim"] | None = None,
    halves: Float16[Tensor, "batch width"] | None = None,
) -> UnitRows:
    r"""Makes embeddings and their own prototypes unit, in single precision.

    .. math::
        u_i = \frac{x_i}{\max(|x_i|, 10^{-12})}, \qquad
        m_i = \frac{\tilde p_{y_i}}{\max(|\tilde p_{y_i}|, 10^{-12})}

    Its slow twin is `F.normalize`, of `new` and of `moved[labels]`. Where a label is no class,
    :math:`m_i` is NaN: a kernel cannot refuse it.

    Args:
        new: Embeddings, :math:`x`, of any length.
        labels: Their classes, :math:`y`, without gaps in memory.
        moved: Prototypes, :math:`\tilde p`, of any length.
        zeros: Filled with 0 on the way, if given.
        halves: Filled with what `stream.unit_halves` makes of `new`, if given.
    """
    batch, dim = new.shape
    e, own = torch.empty(2, batch, dim, dtype=torch.float32, device=new.device)
    length, cosine, losses = e.new_empty(3, batch)
    unit_rows_kernel[(batch,)](
        new, *new.stride(), labels, moved, *moved.stride(), len(moved),
        e, length, own, cosine, halves, zeros, dim,
        width=width_for(dim), num_warps=warps_for(dim),
    )  # fmt: skip
    return UnitRows(e, length, own, cosine, losses)


def losses_of_rows(
    rows: UnitRows,
    sums: Float[Tensor, "batch parts"],
    temperature: float,
    pulls: Float[Tensor, "some batch dim"] | None = None,
) -> tuple[Float[Tensor, " batch"], Float[Tensor, "batch dim"] | None]:
    r"""The loss of each row and, given pulls, the gradient of their mean.

    .. math::
        L_i = \log(1 + z_i / o_i), \qquad o_i = \exp\bigl((u_i^\top m_i - 1) / \tau\bigr)

    .. math::
        \frac{\partial}{\partial x_i} \frac{1}{B} \sum_j L_j
        = \frac{g_i - (g_i^\top u_i)\, u_i}{l_i}, \qquad
        g_i = \frac{a_i - z_i m_i}{B \tau (o_i + z_i)}

    Its slow twin is `allclasses.loss_by_torch`, after the sums. Embeddings shorter than
    :math:`10^{-12}` are not made unit but divided by that, so their gradient is
    :math:`g_i / 10^{-12}`.

    Args:
        rows: Of `unit_rows`.
        sums: Parts whose sum over a row is :math:`z`.
        temperature: :math:`\tau`.
        pulls: Parts whose sum is :math:`a`. A single one is overwritten by the gradient.
    """
    batch, dim = rows.e.shape
    gradient, many = None, 0
    if pulls is not None:
        many = len(pulls)
        gradient = pulls[0] if many == 1 else torch.empty_like(rows.e)
    losses_kernel[(batch,)](
        rows.e, rows.length, rows.own, rows.cosine, sums, sums.shape[1], pulls, many,
        rows.losses, gradient, dim, 1 / temperature, 1 / (batch * temperature),
        width=width_for(dim), together=PARTS, unrolled=1 if many == 1 else PULLS,
        num_warps=warps_for(dim),
    )  # fmt: skip
    return rows.losses, gradient


def warps_for(dim: int) -> int:
    """How many groups of 32 threads share a row: 8 numbers a thread, in 8 groups at most."""
    wanted: int = triton.next_power_of_2(triton.cdiv(dim, 256))
    return min(8, wanted)


@triton.jit
@no_type_check
def unit_rows_kernel(
    new, new_row, new_column, labels, moved, moved_row, moved_column, classes,
    e, length, own, cosine, halves, zeros, dim, width: tl.constexpr,
):  # fmt: skip
    """One row of `unit_rows`."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, width).to(tl.int64)
    inside = column < dim
    x = tl.load(new + row * new_row + column * new_column, mask=inside, other=0.0).to(tl.float32)
    label = tl.load(labels + row).to(tl.int64)
    known = (label >= 0) & (label < classes)
    place = moved + tl.where(known, label, 0) * moved_row + column * moved_column
    p = tl.load(place, mask=inside, other=0.0).to(tl.float32)
    p = tl.where(known, p, float("nan"))
    x_length = tl.sqrt(tl.sum(x * x, axis=0))
    p_length = tl.sqrt(tl.sum(p * p, axis=0))
    u = x / tl.maximum(x_length, 1e-12)
    m = p / tl.maximum(p_length, 1e-12)
    tl.store(e + row * dim + column, u, mask=inside)
    tl.store(own + row * dim + column, m, mask=inside)
    tl.store(length + row, x_length)
    tl.store(cosine + row, tl.sum(u * m, axis=0))
    if halves is not None:
        tl.store(halves + row * width + column, u.to(tl.float16))
    if zeros is not None:
        tl.store(zeros + row * dim + column, tl.zeros((width,), tl.float32), mask=inside)


@triton.jit
@no_type_check
def losses_kernel(
    e, length, own, cosine, sums, parts, pulls, many, losses, gradient, dim,
    sharpness, share, width: tl.constexpr, together: tl.constexpr, unrolled: tl.constexpr,
):  # fmt: skip
    """One row of `losses_of_rows`."""
    row = tl.program_id(0).to(tl.int64)
    total = tl.zeros((together,), tl.float32)
    for first in range(0, parts, together):
        part = first + tl.arange(0, together)
        total += tl.load(sums + row * parts + part, mask=part < parts, other=0.0)
    z = tl.sum(total, axis=0)
    o = tl.exp((tl.load(cosine + row) - 1.0) * sharpness)
    tl.store(losses + row, log_of_one_and(z / o))
    if pulls is not None:
        column = tl.arange(0, width)
        inside = column < dim
        place = row * dim + column
        u = tl.load(e + place, mask=inside, other=0.0)
        m = tl.load(own + place, mask=inside, other=0.0)
        a = tl.zeros((width,), tl.float32)
        for begin in range(0, many, unrolled):
            for step in tl.static_range(unrolled):
                start = ((begin + step) * tl.num_programs(0) + row) * dim
                end = tl.where(begin + step < many, dim, 0)
                a += tl.load(pulls + start + column, mask=column < end, other=0.0)
        g = (a - z * m) * (share / (o + z))
        x_length = tl.load(length + row)
        along = tl.where(x_length < 1e-12, 0.0, tl.sum(g * u, axis=0))
        tl.store(gradient + place, (g - along * u) / tl.maximum(x_length, 1e-12), mask=inside)


@triton.jit
@no_type_check
def log_of_one_and(x):
    """log(1 + x), exact for the smallest x: there it is 2 artanh(s), s = x / (2 + x)."""
    s = x / (2.0 + x)
    series = 2.0 * s * (1.0 + s * s * (1.0 / 3.0 + s * s / 5.0))
    return tl.where(x < 0.1, series, tl.log(1.0 + x))
