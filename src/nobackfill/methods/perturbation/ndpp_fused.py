"""One update of NDPP in four launches, where a GPU is done before it is asked for the next.

Of some thousand classes the similarities are products of some tenths of a millisecond, so each
operation that Python asks for counts. These are a flag, both sides of the product, the product, and
what the nearest classes push; only then may anything be waited for.
"""

import torch
from jaxtyping import Float, Int32
from torch import Tensor

from nobackfill.ops.bf16x3 import PIECE, sums_in_float32, torch_rounds
from nobackfill.ops.kernels import usable
from nobackfill.ops.matmul import ALIGNED, half_products


def kind_of_products(
    x: Float[Tensor, "classes dim"],
    p: Float[Tensor, "classes dim"],
    new: Float[Tensor, "classes dim"],
    k: int,
    precision: str,
) -> str | None:
    """What `moved_at_once` is to multiply, see `write_sides`; None where it is not for these.

    It is for single precision on a GPU that has tensor cores, and for as many classes as their
    similarities can be looked through in one go. Where TF32 will do, float16 does: it keeps the 10
    bits after the point that TF32 keeps.
    """
    if not usable(x):
        return None
    from nobackfill.ops.kernels.ndpp_update import fits

    plain = all(one.is_contiguous() and one.dtype == torch.float32 for one in (x, p, new))
    if not (plain and new.device == x.device and fits(x, new, k) and sums_in_float32(x)):
        return None
    if precision == "bfloat16":
        return "bfloat16"
    if precision == "tf32" or torch_rounds():
        return "half"
    return "thirds"


def moved_at_once(
    x: Float[Tensor, "classes dim"],
    p: Float[Tensor, "classes dim"],
    new: Float[Tensor, "classes dim"],
    k: int,
    strength: float,
    *,
    own: bool,
    kind: str,
) -> tuple[Float[Tensor, "classes dim"], Int32[Tensor, "1"]]:
    r"""Prototypes after one update, :math:`x + \alpha\, r(x; q)`, see `NeighborPerturbation`.

    The slow twin is `x + strength * repulsion(x, p, F.normalize(new), k=k, include_self=own)`.

    Args:
        x: Prototypes as they are.
        p: The old ones, of unit length.
        new: The new ones, of any length.
        k: How many classes push.
        strength: :math:`\alpha`.
        own: Whether the new prototype of a class may push the class itself.
        kind: Of `kind_of_products`.

    Returns:
        The moved prototypes, and a flag: 1 where a new prototype was NaN or infinite, and they
        mean nothing. Whoever looks at it waits for the GPU.
    """
    from nobackfill.ops.kernels.ndpp_sides import PIECES, write_sides
    from nobackfill.ops.kernels.ndpp_update import pushed_by_nearest

    classes, dim = x.shape
    columns = PIECES[kind] * (dim + -dim % PIECE)
    half = torch.float16 if kind == "half" else torch.bfloat16
    q = torch.empty_like(new)
    query = q.new_empty(classes, columns, dtype=half)
    gallery = q.new_empty(classes + -classes % ALIGNED, columns, dtype=half)
    broken = q.new_zeros(1, dtype=torch.int32)
    write_sides(p, new, q, query, gallery, broken, kind)
    product = half_products(query, gallery, q.new_empty(classes, len(gallery)))
    return pushed_by_nearest(product, x, q, k, strength, own=own), broken
