"""A contrast with all classes, some at a time: batch x classes is never held."""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from nobackfill.kernels import usable
from nobackfill.products import inner_products, room_for_products, sums_of_rows

BLOCK_BYTES = {"cpu": 16 * 2**20, "cuda": 2**30}  # of products held at once
SHARPEST = 0.025  # below this temperature exponents could vanish


def contrast_with_all(
    e: Float[Tensor, "batch dim"],
    labels: Int[Tensor, " batch"],
    own: Float[Tensor, "batch dim"],
    classes: Float[Tensor, "classes dim"],
    temperature: float,
) -> Float[Tensor, ""]:
    r"""Draws unit embeddings to a place of their own and away from all other classes.

    See `ContrastWithAll`, whose gradient is in `e` alone.

    Args:
        e: Unit embeddings.
        labels: Their classes, :math:`y`.
        own: Where each is drawn to, :math:`m`, unit.
        classes: Where all are kept away from, :math:`p`, of any length.
        temperature: :math:`\tau`, at least `SHARPEST`.
    """
    loss: Tensor = ContrastWithAll.apply(e, labels, own, classes, temperature)  # type: ignore[no-untyped-call]
    return loss


class ContrastWithAll(torch.autograd.Function):
    r"""The mean of :math:`-\log \frac{o_i}{o_i + z_i}`, with its gradient in `e` found on the way.

    .. math::
        o_i = \exp\bigl((e_i^\top m_i - 1) / \tau\bigr), \qquad
        z_i = \sum_{c \ne y_i} w_{ic}, \quad
        w_{ic} = \exp\bigl((e_i^\top p_c - 1) / \tau\bigr)

    .. math::
        \frac{\partial}{\partial e_i} = \frac{1}{B \tau (o_i + z_i)}
        \Bigl( \sum_{c \ne y_i} w_{ic}\, p_c - z_i m_i \Bigr)

    All are of unit length, so no exponent exceeds 0, and none is below :math:`-2 / \tau`: sums need
    no look at their largest term first, and one reading of the classes serves loss and gradient.
    """

    @staticmethod
    def forward(
        ctx: Any,
        e: Float[Tensor, "batch dim"],
        labels: Int[Tensor, " batch"],
        own: Float[Tensor, "batch dim"],
        classes: Float[Tensor, "classes dim"],
        temperature: float,
    ) -> Float[Tensor, ""]:
        """The loss; the gradient waits in `ctx`."""
        wanted = ctx.needs_input_grad[0]
        z, pull = class_sums(e, labels, classes, temperature, gradient=wanted)
        o = (((e * own).sum(dim=1) - 1) / temperature).exp()
        if pull is not None:
            pull.addcmul_(z[:, None], own, value=-1)
            ctx.save_for_backward(pull.div_(((o + z) * (len(e) * temperature))[:, None]))
        return (z / o).log1p().mean()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, outer: Float[Tensor, ""]) -> tuple[Tensor | None, ...]:
        """The gradient in `e`; nothing else has one."""
        (gradient,) = ctx.saved_tensors
        return outer * gradient, None, None, None, None


def class_sums(
    e: Float[Tensor, "batch dim"],
    labels: Int[Tensor, " batch"],
    classes: Float[Tensor, "classes dim"],
    temperature: float,
    *,
    gradient: bool = True,
    block: int | None = None,
) -> tuple[Float[Tensor, " batch"], Float[Tensor, "batch dim"] | None]:
    r"""Sums over all classes but the own one, with classes made unit.

    .. math::
        z_i = \sum_{c \ne y_i} w_{ic}, \qquad a_i = \sum_{c \ne y_i} w_{ic}\, p_c

    with :math:`w` as in `ContrastWithAll`. Two products of matrices, `block` classes at a time.
    """
    block = block or max(1, BLOCK_BYTES.get(e.device.type, 2**26) // (len(e) * e.element_size()))
    weights = weights_by_kernel if usable(e) and e.dtype == torch.float32 else weights_by_torch
    z = e.new_zeros(len(e))
    a = torch.zeros_like(e) if gradient else None
    for first in range(0, len(classes), block):
        some = classes[first : first + block].to(e.dtype)
        scaled, sums = weights(e, labels - first, some, temperature)
        z += sums
        if a is not None:
            sums_of_rows(scaled, some, a)
    return z, a


def weights_by_torch(
    e: Float[Tensor, "batch dim"],
    own: Int[Tensor, " batch"],
    some: Float[Tensor, "some dim"],
    temperature: float,
) -> tuple[Float[Tensor, "batch some"], Float[Tensor, " batch"]]:
    r"""The weights of some classes, each over its class's length, and their sums.

    Args:
        e: Unit embeddings.
        own: Each one's own class among these; any other number where it is not there.
        some: The classes, of any length.
        temperature: :math:`\tau`.
    """
    scale = 1 / some.norm(dim=1).clamp(min=1e-12)
    weight = products(e, some).mul_(scale).sub_(1).div_(temperature).exp_()
    here = ((own >= 0) & (own < len(some)))[:, None]
    column = own.clamp(0, len(some) - 1)[:, None]
    weight.scatter_(1, column, weight.gather(1, column).masked_fill_(here, 0))
    sums = weight.sum(dim=1)
    return weight.mul_(scale), sums


def products(
    e: Float[Tensor, "batch dim"], some: Float[Tensor, "some dim"]
) -> Float[Tensor, "batch some"]:
    """All inner products, in rows that start where writing is fast."""
    return inner_products(e, some, room_for_products(e, len(e), len(some)))


def weights_by_kernel(
    e: Float[Tensor, "batch dim"],
    own: Int[Tensor, " batch"],
    some: Float[Tensor, "some dim"],
    temperature: float,
) -> tuple[Float[Tensor, "batch some"], Float[Tensor, " batch"]]:
    """The same on a GPU, in one reading of the products."""
    from nobackfill.kernels.exponents import exponents

    weight = products(e, some)
    return weight, exponents(weight, own, some.norm(dim=1), temperature)
