"""The loss of each row of a contrast with all classes, and its gradient, from sums over them."""

from typing import no_type_check

import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor

from nobackfill.ops.kernels.normalize import width_for

PARTS = 64  # of a row's sum that are looked at together
PULLS = 8  # parts of a row's pull that are on their way at a time


def losses_of_rows(
    new: Float[Tensor, "batch dim"],
    labels: Int[Tensor, " batch"],
    moved: Float[Tensor, "classes dim"],
    sums: Float[Tensor, "batch parts"],
    temperature: float,
    pulls: Float[Tensor, "some batch dim"] | None = None,
) -> tuple[Float[Tensor, " batch"], Float[Tensor, "batch dim"] | None]:
    r"""The loss of each row and, given pulls, the gradient of their mean.

    .. math::
        L_i = \log(1 + z_i / o_i), \qquad o_i = \exp\bigl((u_i^\top m_i - 1) / \tau\bigr), \qquad
        u_i = \frac{x_i}{|x_i|}, \quad m_i = \frac{\tilde p_{y_i}}{|\tilde p_{y_i}|}

    .. math::
        \frac{\partial}{\partial x_i} \frac{1}{B} \sum_j L_j
        = \frac{g_i - (g_i^\top u_i)\, u_i}{|x_i|}, \qquad
        g_i = \frac{a_i - z_i m_i}{B \tau (o_i + z_i)}

    Its slow twin is `allclasses.loss_by_torch`, after the sums. Vectors shorter than
    :math:`10^{-12}` are not made unit but divided by that, so their gradient is
    :math:`g_i / 10^{-12}`. Where a label is no class, :math:`m_i` is NaN: a kernel cannot refuse
    it.

    Args:
        new: Embeddings, :math:`x`, of any length.
        labels: Their classes, :math:`y`, without gaps in memory.
        moved: Prototypes, :math:`\tilde p`, of any length.
        sums: Parts whose sum over a row is :math:`z`.
        temperature: :math:`\tau`.
        pulls: Parts whose sum is :math:`a`. A single one is overwritten by the gradient.
    """
    batch, dim = new.shape
    losses = sums.new_empty(batch)
    gradient, many = None, 0
    if pulls is not None:
        many = len(pulls)
        gradient = pulls[0] if many == 1 else pulls.new_empty(batch, dim)
    losses_kernel[(batch,)](
        new, *new.stride(), labels, moved, *moved.stride(), len(moved),
        sums, sums.shape[1], pulls, many, losses, gradient,
        dim, 1 / temperature, 1 / (batch * temperature),
        width=width_for(dim), together=PARTS, unrolled=1 if many == 1 else PULLS,
        num_warps=warps_for(dim),
    )  # fmt: skip
    return losses, gradient


def warps_for(dim: int) -> int:
    """How many groups of 32 threads share a row: 8 numbers a thread, in 8 groups at most."""
    wanted: int = triton.next_power_of_2(triton.cdiv(dim, 256))
    return min(8, wanted)


@triton.jit
@no_type_check
def losses_kernel(
    new, new_row, new_column, labels, moved, moved_row, moved_column, classes,
    sums, parts, pulls, many, losses, gradient, dim, sharpness, share,
    width: tl.constexpr, together: tl.constexpr, unrolled: tl.constexpr,
):  # fmt: skip
    """One row of `losses_of_rows`."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, width)
    inside = column < dim
    x = vector(new + row * new_row, column, new_column, inside)
    label = tl.load(labels + row).to(tl.int64)
    known = (label >= 0) & (label < classes)
    m = vector(moved + tl.where(known, label, 0) * moved_row, column, moved_column, inside)
    m = tl.where(known, m / tl.maximum(length_of(m), 1e-12), float("nan"))
    x_length = length_of(x)
    u = x / tl.maximum(x_length, 1e-12)
    total = tl.zeros((together,), tl.float32)
    for first in range(0, parts, together):
        part = first + tl.arange(0, together)
        total += tl.load(sums + row * parts + part, mask=part < parts, other=0.0)
    z = tl.sum(total, axis=0)
    o = tl.exp((tl.sum(u * m, axis=0) - 1.0) * sharpness)
    tl.store(losses + row, log_of_one_and(z / o))
    if pulls is not None:
        a = tl.zeros((width,), tl.float32)
        for begin in range(0, many, unrolled):
            for step in tl.static_range(unrolled):
                start = ((begin + step) * tl.num_programs(0) + row) * dim
                end = tl.where(begin + step < many, dim, 0)
                a += tl.load(pulls + start + column, mask=column < end, other=0.0)
        g = (a - z * m) * (share / (o + z))
        along = tl.where(x_length < 1e-12, 0.0, tl.sum(g * u, axis=0))
        slope = (g - along * u) / tl.maximum(x_length, 1e-12)
        tl.store(gradient + row * dim + column, slope, mask=inside)


@triton.jit
@no_type_check
def vector(start, column, stride, inside):
    """A row in single precision; 0 where nothing is inside."""
    return tl.load(start + column.to(tl.int64) * stride, mask=inside, other=0.0).to(tl.float32)


@triton.jit
@no_type_check
def length_of(x):
    """The length of a vector."""
    return tl.sqrt(tl.sum(x * x, axis=0))


@triton.jit
@no_type_check
def log_of_one_and(x):
    """log(1 + x), exact for the smallest x: there it is 2 artanh(s), s = x / (2 + x)."""
    s = x / (2.0 + x)
    series = 2.0 * s * (1.0 + s * s * (1.0 / 3.0 + s * s / 5.0))
    return tl.where(x < 0.1, series, tl.log(1.0 + x))
