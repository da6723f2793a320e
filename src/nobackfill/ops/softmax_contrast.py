"""Contrast of a batch with all classes, in blocks: no batch x classes tensor exists."""

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from nobackfill.ops.bf16x3 import torch_rounds
from nobackfill.ops.kernels import usable
from nobackfill.ops.matmul import empty_products, inner_products, sums_of_rows

BLOCK_BYTES = {"cpu": 16 * 2**20, "cuda": 2**30}  # of products per block
SHARPEST = 0.025  # lowest temperature; below it, exponents could underflow
SHORTEST = 1e-12  # shortest length that a vector is divided by


def contrast_with_all(
    new: Float[Tensor, "batch dim"],
    labels: Int[Tensor, " batch"],
    positives: Float[Tensor, "positives batch dim"],
    classes: Float[Tensor, "classes dim"],
    temperature: float,
) -> Float[Tensor, ""]:
    r"""Pulls each embedding to its positives and away from all classes but its own.

    The formula is that of `class_contrast`, the gradient is in `new` alone. The temperature must be
    at least `SHARPEST`; see `ContrastWithAll`.
    """
    if not torch.is_grad_enabled():
        return loss_and_gradient(new, labels, positives, classes, temperature, gradient=False)[0]
    loss: Tensor = ContrastWithAll.apply(new, labels, positives, classes, temperature)  # type: ignore[no-untyped-call]
    return loss


class ContrastWithAll(torch.autograd.Function):
    r"""The mean of :math:`-\log \frac{o_{ik}}{o_{ik} + z_i}`, with its gradient from the same pass.

    .. math::
        o_{ik} = \exp\bigl((e_i^\top m_{ik} - 1) / \tau\bigr), \qquad
        z_i = \sum_{c \ne y_i} w_{ic}, \quad
        w_{ic} = \exp\bigl((e_i^\top p_c - 1) / \tau\bigr)

    with :math:`B` embeddings :math:`e`, :math:`K` positives :math:`m_{ik}` of each, and the vectors
    :math:`p` of all classes, all made unit. In the unit embeddings the gradient is

    .. math::
        g_i = \frac{1}{B K \tau} \sum_k \frac{1}{o_{ik} + z_i}
        \Bigl( \sum_{c \ne y_i} w_{ic}\, p_c - z_i m_{ik} \Bigr)

    and in embeddings as they are, that of `before_normalizing`.

    All vectors have unit length, so exponents lie between :math:`-2 / \tau` and 0. The sums need no
    maximum first, and one pass over the classes gives loss and gradient, however many positives.
    """

    @staticmethod
    def forward(
        ctx: Any,
        new: Float[Tensor, "batch dim"],
        labels: Int[Tensor, " batch"],
        positives: Float[Tensor, "positives batch dim"],
        classes: Float[Tensor, "classes dim"],
        temperature: float,
    ) -> Float[Tensor, ""]:
        """Computes the loss and keeps the gradient in `ctx`."""
        loss, gradient = loss_and_gradient(
            new, labels, positives, classes, temperature, gradient=ctx.needs_input_grad[0]
        )
        ctx.save_for_backward(gradient)
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, outer: Float[Tensor, ""]) -> tuple[Tensor | None, ...]:
        """Returns the gradient in `new`; no other input has one."""
        (gradient,) = ctx.saved_tensors
        return outer * gradient, None, None, None, None


def loss_and_gradient(
    new: Float[Tensor, "batch dim"],
    labels: Int[Tensor, " batch"],
    positives: Float[Tensor, "positives batch dim"],
    classes: Float[Tensor, "classes dim"],
    temperature: float,
    *,
    gradient: bool,
) -> tuple[Float[Tensor, ""], Float[Tensor, "batch dim"] | None]:
    """Returns the loss of `ContrastWithAll` and, if `gradient`, its gradient in `new`."""
    e = F.normalize(new, dim=-1)
    m = F.normalize(positives.to(e.dtype), dim=-1)
    z, pull = class_sums(e, labels, classes, temperature, gradient=gradient)
    o = (((e * m).sum(dim=-1) - 1) / temperature).exp()  # (positives, batch)
    if pull is not None:
        scale = (1 / ((o + z) * (o.numel() * temperature)))[..., None]
        pull = pull.mul_(scale.sum(dim=0)).sub_((scale * m).sum(dim=0).mul_(z[:, None]))
        pull = before_normalizing(pull, new, e)
    return (z / o).log1p().mean(), pull


def before_normalizing(
    g: Float[Tensor, "batch dim"], new: Float[Tensor, "batch dim"], e: Float[Tensor, "batch dim"]
) -> Float[Tensor, "batch dim"]:
    r"""Turns the gradient in unit vectors :math:`e` into the gradient in `new`.

    .. math::
        \frac{g_i - (g_i^\top e_i)\, e_i}{|x_i|}

    Vectors shorter than `SHORTEST` were divided by `SHORTEST`, and so is their gradient.
    """
    length: Tensor = new.norm(dim=1, keepdim=True)
    along = (g * e).sum(dim=1, keepdim=True).masked_fill_(length < SHORTEST, 0)
    return (g - along * e) / length.clamp(min=SHORTEST)


def class_sums(
    e: Float[Tensor, "batch dim"],
    labels: Int[Tensor, " batch"],
    classes: Float[Tensor, "classes dim"],
    temperature: float,
    *,
    gradient: bool = True,
    block: int | None = None,
) -> tuple[Float[Tensor, " batch"], Float[Tensor, "batch dim"] | None]:
    r"""Returns :math:`z_i` and :math:`\sum_{c \ne y_i} w_{ic}\, p_c` of `ContrastWithAll`."""
    if torch_rounds() and usable(e):
        from nobackfill.ops.kernels import softmax_stream

        if softmax_stream.fits(e, classes):
            return softmax_stream.streamed_class_sums(
                e, labels, classes, temperature, gradient=gradient
            )
    most = BLOCK_BYTES.get(e.device.type, 2**26)
    block = block or max(1, most // (len(e) * e.element_size()))
    z = e.new_zeros(len(e))
    a = torch.zeros_like(e) if gradient else None
    for first in range(0, len(classes), block):
        part = classes[first : first + block].to(e.dtype)
        weight, sums = class_weights(e, labels - first, part, temperature)
        z += sums
        if a is not None:
            sums_of_rows(weight, part, a)
    return z, a


def class_weights(
    e: Float[Tensor, "batch dim"],
    own: Int[Tensor, " batch"],
    classes: Float[Tensor, "block dim"],
    temperature: float,
) -> tuple[Float[Tensor, "batch block"], Float[Tensor, " batch"]]:
    """Returns weights of a block of classes, divided by the length of their class, and their sums.

    `own` is the row of each embedding's own class in `classes`, or a number outside it.
    """
    product = inner_products(e, classes, empty_products(e, len(e), len(classes)))
    length = classes.norm(dim=1)
    if usable(product) and product.dtype == torch.float32:
        from nobackfill.ops.kernels.softmax_terms import exponents

        sums = exponents(product, own, length, temperature)
        return product, sums
    return weights_by_torch(product, own, length, temperature)


def weights_by_torch(
    product: Float[Tensor, "batch block"],
    own: Int[Tensor, " batch"],
    length: Float[Tensor, " block"],
    temperature: float,
) -> tuple[Float[Tensor, "batch block"], Float[Tensor, " batch"]]:
    r"""Computes the same as the kernel `exponents`: :math:`w_{ic} / l_c`, over the products."""
    scale = 1 / length.clamp(min=SHORTEST)
    weight = product.mul_(scale).sub_(1).div_(temperature).exp_()
    # The own class has weight 0 where it is in this block.
    here = ((own >= 0) & (own < len(length)))[:, None]
    column = own.clamp(0, len(length) - 1)[:, None]
    weight.scatter_(1, column, weight.gather(1, column).masked_fill_(here, 0))
    sums = weight.sum(dim=1)
    return weight.mul_(scale), sums
