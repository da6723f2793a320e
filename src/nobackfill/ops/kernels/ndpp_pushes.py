"""Where neighbours push each class, from the neighbours found, in one reading of them."""

from typing import no_type_check

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor

WIDEST = 4096  # dimensions; a row is held whole
UNROLLED = 8  # neighbours on their way at a time


def fits(
    x: Float[Tensor, "classes dim"],
    n: Float[Tensor, "classes dim"],
    cosine: Float[Tensor, "classes k"],
) -> bool:
    """Whether `pushes` takes such classes and neighbours."""
    single = x.dtype == n.dtype == cosine.dtype == torch.float32
    return single and x.shape[1] <= WIDEST and cosine.shape[1] > 0


def pushes(
    x: Float[Tensor, "classes dim"],
    n: Float[Tensor, "classes dim"],
    neighbor: Int[Tensor, "classes k"],
    cosine: Float[Tensor, "classes k"],
) -> Float[Tensor, "classes dim"]:
    r"""The sum of :math:`w_{cj} (x_c - n_j)` over the neighbours of each class.

    .. math::
        w_{cj} = \frac{\max(0, \cos_{cj})}{\max(10^{-8}, \sum_i \max(0, \cos_{ci}))}

    The slow twin is `nobackfill.methods.perturbation.ndpp.weighted_pushes`.
    """
    x, n = x.contiguous(), n.contiguous()
    out = torch.empty_like(x)
    push_kernel[(len(x),)](
        x, n, neighbor, cosine, out, x.shape[1], neighbor.shape[1],
        block=triton.next_power_of_2(x.shape[1]), room=triton.next_power_of_2(neighbor.shape[1]),
        unrolled=UNROLLED, num_warps=2,
    )  # fmt: skip
    return out


@triton.jit
@no_type_check
def push_kernel(
    x, n, neighbor, cosine, out, dim, k,
    block: tl.constexpr, room: tl.constexpr, unrolled: tl.constexpr,
):  # fmt: skip
    """The push of one class."""
    row = tl.program_id(0).to(tl.int64)
    neighbor += row * k
    cosine += row * k
    at = tl.arange(0, block)
    inside = at < dim
    slot = tl.arange(0, room)
    near = tl.maximum(tl.load(cosine + slot, mask=slot < k, other=0.0), 0.0)
    total = tl.sum(near, axis=0)
    scale = 1.0 / tl.maximum(total, 1e-8)
    pull = tl.zeros((block,), tl.float32)
    for first in range(0, k, unrolled):
        for step in tl.static_range(unrolled):
            there = first + step < k
            other = tl.load(neighbor + first + step, mask=there, other=0).to(tl.int64)
            weight = tl.maximum(tl.load(cosine + first + step, mask=there, other=0.0), 0.0) * scale
            pull += weight * tl.load(n + other * dim + at, mask=inside, other=0.0)
    place = tl.load(x + row * dim + at, mask=inside, other=0.0)
    tl.store(out + row * dim + at, total * scale * place - pull, mask=inside)
