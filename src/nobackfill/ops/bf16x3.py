r"""Products of single precision on tensor cores: each number as the sum of three of bfloat16.

A float32 has 24 bits, a bfloat16 has 8: :math:`x = h + m + l` holds all of them. Of the nine
products of two such sums, three are smaller than the rounding of a float32 and are left out. The
other six, the smallest first, are *one* product of matrices six times as wide:

.. math::
    x^\top y \approx
    (l_x, h_x, m_x, m_x, h_x, h_x)^\top (h_y, l_y, m_y, h_y, m_y, h_y)

Tensor cores multiply bfloat16 exactly and add up in float32, though they cut off what does not fit
where others round: up to some hundred dimensions the result is as near to the true value as a
product of float32 is, at 2,048 its error is 2.6 times as large (benchmarks/SPEED.md).
"""

from functools import cache

import torch
from jaxtyping import BFloat16, Float
from torch import Tensor

PIECE = 8  # numbers: pieces begin where tensor cores can load them, 16 bytes
QUERY = (2, 0, 1, 1, 0, 0)  # 0 is the highest third
GALLERY = (0, 2, 1, 0, 1, 0)
LEAST_ROWS = 256  # of the other side; for fewer, making the sides costs more than they bring
LEAST_PRODUCTS = 2**30  # multiplications
MOST_MEMORY = 8  # a side takes one part in so many of a GPU's, at most


def thirds(
    x: Float[Tensor, "rows dim"],
) -> tuple[
    BFloat16[Tensor, "rows dim"], BFloat16[Tensor, "rows dim"], BFloat16[Tensor, "rows dim"]
]:
    """Three numbers whose sum is `x`, the largest first: each takes 8 bits of what is left.

    Example:
        >>> high, middle, low = thirds(torch.tensor([[0.1]]))
        >>> (high.double() + middle.double() + low.double()).item() == torch.tensor(0.1).item()
        True
    """
    high = x.bfloat16()
    rest = x - high.float()
    middle = rest.bfloat16()
    return high, middle, (rest - middle.float()).bfloat16()


def query_side(x: Float[Tensor, "rows dim"]) -> BFloat16[Tensor, "rows six_times"]:
    """The left side of the product above."""
    return _side(x, QUERY)


def gallery_side(
    x: Float[Tensor, "rows dim"], more: int = 0
) -> BFloat16[Tensor, "rows_and_more six_times"]:
    """The right side of the product above; its first three pieces are all thirds.

    Args:
        x: One row each.
        more: Rows of zeros after the last one.
    """
    return _side(x, GALLERY, more)


def pay(rows: int, gallery: Float[Tensor, "gallery dim"]) -> bool:
    """Whether `rows` of queries times a gallery are faster and safe this way.

    Only on a GPU, only for single precision that the user did not give up (torch's own setting of
    the precision of products), and only where there is room for a side.
    """
    if not sums_in_float32(gallery) or gallery.dtype != torch.float32:
        return False
    if torch_rounds():
        return False
    number, dim = gallery.shape
    memory = torch.cuda.get_device_properties(gallery.device).total_memory
    enough = rows >= LEAST_ROWS and rows * number * dim >= LEAST_PRODUCTS
    return enough and 12 * number * (dim + -dim % PIECE) <= memory // MOST_MEMORY


def sums_in_float32(x: Tensor) -> bool:
    """Whether products of bfloat16 can be summed in float32 where `x` is.

    GPUs that have tensor cores for them can, those of NVIDIA since Ampere; torch can since 2.8.
    """
    return x.is_cuda and _sums_in_float32_on(x.device)


@cache
def _sums_in_float32_on(gpu: torch.device) -> bool:
    able = torch.cuda.get_device_capability(gpu) >= (8, 0)
    return able and "dtype_out" in torch.ops.aten.mm.overloads()


def torch_rounds() -> bool:
    """Whether torch may multiply float32 on a GPU with fewer bits, as its user told it.

    Newer ones refuse to answer the older question once the newer setting was used.
    """
    setting = getattr(torch.backends.cuda.matmul, "fp32_precision", None)
    if setting is None:
        return torch.get_float32_matmul_precision() != "highest"
    return bool(setting == "tf32")


def _side(x: Float[Tensor, "rows dim"], order: tuple[int, ...], more: int = 0) -> Tensor:
    rows, dim = x.shape
    width = dim + -dim % PIECE
    out = x.new_zeros(rows + more, 6, width, dtype=torch.bfloat16)
    pieces = thirds(x)
    for place, third in enumerate(order):
        out[:rows, place, :dim] = pieces[third]
    return out.flatten(1)
