"""A contrast with all classes, some at a time: batch x classes is never held."""

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from nobackfill.ops.bf16x3 import torch_rounds
from nobackfill.ops.kernels import usable
from nobackfill.ops.matmul import inner_products, room_for_products, sums_of_rows

BLOCK_BYTES = {"cpu": 16 * 2**20, "cuda": 2**30}  # of products held at once
SHARPEST = 0.025  # below this temperature exponents could vanish
SHORTEST = 1e-12  # of a vector that is made unit; what is shorter is divided by this


def contrast_with_all(
    new: Float[Tensor, "batch dim"],
    labels: Int[Tensor, " batch"],
    moved: Float[Tensor, "classes dim"],
    old: Float[Tensor, "classes dim"],
    temperature: float,
) -> Float[Tensor, ""]:
    r"""Draws embeddings to the moved prototype of their own class and away from all other classes.

    See `ContrastWithAll`, whose gradient is in `new` alone.

    Args:
        new: Embeddings, :math:`x`, of any length.
        labels: Their classes, :math:`y`.
        moved: Where a class is drawn to, of any length.
        old: Where it is kept away from, of any length.
        temperature: :math:`\tau`, at least `SHARPEST`.
    """
    if not torch.is_grad_enabled():
        return loss_and_gradient(new, labels, moved, old, temperature, gradient=False)[0]
    loss: Tensor = ContrastWithAll.apply(new, labels, moved, old, temperature)  # type: ignore[no-untyped-call]
    return loss


class ContrastWithAll(torch.autograd.Function):
    r"""The mean of :math:`-\log \frac{o_i}{o_i + z_i}`, with its gradient found on the way.

    .. math::
        o_i = \exp\bigl((e_i^\top m_i - 1) / \tau\bigr), \qquad
        z_i = \sum_{c \ne y_i} w_{ic}, \quad
        w_{ic} = \exp\bigl((e_i^\top p_c - 1) / \tau\bigr)

    with embeddings :math:`e`, moved prototypes :math:`m_i` of their own classes, and old ones
    :math:`p`, all made unit. In the unit embeddings the gradient is

    .. math::
        g_i = \frac{1}{B \tau (o_i + z_i)} \Bigl( \sum_{c \ne y_i} w_{ic}\, p_c - z_i m_i \Bigr)

    and in embeddings as they are, that of `before_normalizing`.

    As all are unit, no exponent exceeds 0, and none is below :math:`-2 / \tau`: sums need no look
    at their largest term first, and one reading of the classes serves loss and gradient.
    """

    @staticmethod
    def forward(
        ctx: Any,
        new: Float[Tensor, "batch dim"],
        labels: Int[Tensor, " batch"],
        moved: Float[Tensor, "classes dim"],
        old: Float[Tensor, "classes dim"],
        temperature: float,
    ) -> Float[Tensor, ""]:
        """The loss; the gradient waits in `ctx`."""
        wanted = ctx.needs_input_grad[0]
        loss, gradient = loss_and_gradient(new, labels, moved, old, temperature, gradient=wanted)
        ctx.save_for_backward(gradient)
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, outer: Float[Tensor, ""]) -> tuple[Tensor | None, ...]:
        """The gradient in `new`; nothing else has one."""
        (gradient,) = ctx.saved_tensors
        return outer * gradient, None, None, None, None


def loss_and_gradient(
    new: Float[Tensor, "batch dim"],
    labels: Int[Tensor, " batch"],
    moved: Float[Tensor, "classes dim"],
    old: Float[Tensor, "classes dim"],
    temperature: float,
    *,
    gradient: bool,
) -> tuple[Float[Tensor, ""], Float[Tensor, "batch dim"] | None]:
    """The loss of `ContrastWithAll` and, if asked for, its gradient in `new`."""
    by = loss_by_kernels if kernels_take(new) else loss_by_torch
    return by(new, labels, moved, old, temperature, gradient=gradient)


def kernels_take(new: Float[Tensor, "batch dim"]) -> bool:
    """Whether kernels do all: on a GPU, where unit embeddings are in single precision.

    Those of embeddings in half precision are so under autocast, as their lengths are.
    """
    if not usable(new):
        return False
    from nobackfill.ops.kernels.normalize import fits

    single = new.dtype == torch.float32
    half = new.dtype in (torch.float16, torch.bfloat16)
    return fits(new) and (single or (half and torch.is_autocast_enabled(new.device.type)))


def loss_by_torch(
    new: Float[Tensor, "batch dim"],
    labels: Int[Tensor, " batch"],
    moved: Float[Tensor, "classes dim"],
    old: Float[Tensor, "classes dim"],
    temperature: float,
    *,
    gradient: bool = True,
) -> tuple[Float[Tensor, ""], Float[Tensor, "batch dim"] | None]:
    """`loss_and_gradient` on any device, in any precision."""
    e = F.normalize(new, dim=-1)
    own = F.normalize(moved[labels].to(e.dtype), dim=-1)
    z, pull = class_sums(e, labels, old, temperature, gradient=gradient)
    o = (((e * own).sum(dim=1) - 1) / temperature).exp()
    if pull is not None:
        pull.addcmul_(z[:, None], own, value=-1)
        pull.div_(((o + z) * (len(e) * temperature))[:, None])
        pull = before_normalizing(pull, new, e)
    return (z / o).log1p().mean(), pull


def before_normalizing(
    g: Float[Tensor, "batch dim"], new: Float[Tensor, "batch dim"], e: Float[Tensor, "batch dim"]
) -> Float[Tensor, "batch dim"]:
    r"""The gradient in vectors as they are, given that in their unit vectors.

    .. math::
        \frac{g_i - (g_i^\top e_i)\, e_i}{|x_i|}

    Vectors shorter than `SHORTEST` were divided by that, and so is their gradient.
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
    r"""Sums over all classes but the own one, with classes made unit.

    .. math::
        z_i = \sum_{c \ne y_i} w_{ic}, \qquad a_i = \sum_{c \ne y_i} w_{ic}\, p_c

    with :math:`w` as in `ContrastWithAll`. Two products of matrices, `block` classes at a time.
    """
    block = block or classes_at_once(e)
    z = e.new_zeros(len(e))
    a = torch.zeros_like(e) if gradient else None
    for first in range(0, len(classes), block):
        some = classes[first : first + block].to(e.dtype)
        scaled, sums = weights_by_torch(e, labels - first, some, temperature)
        z += sums
        if a is not None:
            sums_of_rows(scaled, some, a)
    return z, a


def classes_at_once(e: Float[Tensor, "batch dim"]) -> int:
    """How many classes have their products with a batch held at once."""
    return max(1, BLOCK_BYTES.get(e.device.type, 2**26) // (len(e) * e.element_size()))


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
    scale = 1 / some.norm(dim=1).clamp(min=SHORTEST)
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


def loss_by_kernels(
    new: Float[Tensor, "batch dim"],
    labels: Int[Tensor, " batch"],
    moved: Float[Tensor, "classes dim"],
    old: Float[Tensor, "classes dim"],
    temperature: float,
    *,
    gradient: bool = True,
    block: int | None = None,
) -> tuple[Float[Tensor, ""], Float[Tensor, "batch dim"] | None]:
    """`loss_and_gradient` on a GPU in single precision: few launches, and products read once.

    Where torch may round factors to ten bits after the point, products are not even written.
    """
    from nobackfill.ops.kernels.softmax_rows import losses_of_rows
    from nobackfill.ops.kernels.softmax_stream import fits

    labels = labels.contiguous()
    if torch_rounds() and fits(new, old):
        sums, pulls = sums_by_stream(new, labels, old, temperature, gradient=gradient)
    else:
        sums, pulls = sums_by_blocks(new, labels, old, temperature, gradient=gradient, block=block)
    losses, slope = losses_of_rows(new, labels, moved, sums, temperature, pulls)
    return losses.mean(), slope


def sums_by_stream(
    new: Float[Tensor, "batch dim"],
    labels: Int[Tensor, " batch"],
    classes: Float[Tensor, "classes dim"],
    temperature: float,
    *,
    gradient: bool,
) -> tuple[Float[Tensor, "batch parts"], Float[Tensor, "some batch dim"] | None]:
    """Parts of `class_sums`, with both factors in half precision: a single kernel."""
    from nobackfill.ops.kernels.normalize import unit_halves
    from nobackfill.ops.kernels.softmax_stream import stream

    e, p = unit_halves(new, classes)
    return stream(e, p, labels, temperature, new.shape[1], gradient=gradient)


def sums_by_blocks(
    new: Float[Tensor, "batch dim"],
    labels: Int[Tensor, " batch"],
    classes: Float[Tensor, "classes dim"],
    temperature: float,
    *,
    gradient: bool,
    block: int | None = None,
) -> tuple[Float[Tensor, "batch parts"], Float[Tensor, "1 batch dim"] | None]:
    """Parts of `class_sums`, `block` classes at a time."""
    from nobackfill.ops.kernels.normalize import unit_rows

    e = unit_rows(new)
    block = block or classes_at_once(e)
    pull = torch.empty_like(e) if gradient else None
    blocks = [classes] if block >= len(classes) else classes.split(block)
    sums = [
        sums_by_kernel(e, labels, some.float(), number * block, temperature, pull)
        for number, some in enumerate(blocks)
    ]
    together = sums[0] if len(sums) == 1 else torch.cat(sums, dim=1)
    return together, None if pull is None else pull[None]


def sums_by_kernel(
    e: Float[Tensor, "batch dim"],
    labels: Int[Tensor, " batch"],
    some: Float[Tensor, "some dim"],
    first: int,
    temperature: float,
    pull: Float[Tensor, "batch dim"] | None,
) -> Float[Tensor, "batch parts"]:
    """Parts of `class_sums` over some classes, from `first` on.

    If there is a `pull`, what these add to :math:`a` is added to it; the first classes write it.
    """
    from nobackfill.ops.kernels.softmax_terms import exponents_in_parts

    weight = products(e, some)
    sums = exponents_in_parts(weight, labels, some.norm(dim=1), temperature, first=first)
    if pull is not None:
        sums_of_rows(weight, some, pull, fresh=first == 0)
    return sums
