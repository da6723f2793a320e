r"""Float32 products on bfloat16 tensor cores: each number is the sum of three bfloat16 numbers.

A float32 has 24 significant bits, a bfloat16 has 8: :math:`x = h + m + l` is exact. Three of the
nine products of two such sums are smaller than the rounding of a float32 and are left out. The
other six, the smallest first, are *one* product of matrices six times as wide:

.. math::
    x^\top y \approx
    (l_x, h_x, m_x, m_x, h_x, h_x)^\top (h_y, l_y, m_y, h_y, m_y, h_y)

Tensor cores multiply bfloat16 exactly and sum in float32, but truncate instead of rounding. Up to a
few hundred dimensions the result is as accurate as a float32 product; at 2,048 its error is 2.6
times as large (benchmarks/SPEED.md).
"""

from functools import cache

import torch
from jaxtyping import BFloat16, Float
from torch import Tensor

PIECE = 8  # numbers, 16 bytes: the alignment of tensor cores
QUERY = (2, 0, 1, 1, 0, 0)  # 0 is the highest part
GALLERY = (0, 2, 1, 0, 1, 0)
LEAST_ROWS = 256  # queries; for fewer, splitting costs more than it saves
LEAST_PRODUCTS = 2**30  # multiplications
MOST_MEMORY = 8  # a split gallery takes at most 1/8 of the GPU's memory


def thirds(
    x: Float[Tensor, "rows dim"],
) -> tuple[
    BFloat16[Tensor, "rows dim"], BFloat16[Tensor, "rows dim"], BFloat16[Tensor, "rows dim"]
]:
    """Splits `x` into three bfloat16 numbers that sum to it, the largest first."""
    high = x.bfloat16()
    rest = x - high.float()
    middle = rest.bfloat16()
    return high, middle, (rest - middle.float()).bfloat16()


def six_parts(
    x: Float[Tensor, "rows dim"], order: tuple[int, ...], padding: int = 0
) -> BFloat16[Tensor, "rows_and_padding six_times"]:
    """Returns a factor of the product above, `QUERY` or `GALLERY`, and `padding` rows of zeros."""
    rows, dim = x.shape
    out = x.new_zeros(rows + padding, 6, dim + -dim % PIECE, dtype=torch.bfloat16)
    parts = thirds(x)
    for place, part in enumerate(order):
        out[:rows, place, :dim] = parts[part]
    return out.flatten(1)


def is_worthwhile(rows: int, gallery: Float[Tensor, "gallery dim"]) -> bool:
    """Whether the product of `rows` queries with a gallery is faster and safe this way.

    It is so only on a GPU, for float32 whose products the user did not allow to be rounded, and
    if there is enough memory for the split gallery.
    """
    if not sums_in_float32(gallery) or gallery.dtype != torch.float32 or torch_rounds():
        return False
    number, dim = gallery.shape
    memory = torch.cuda.get_device_properties(gallery.device).total_memory
    enough = rows >= LEAST_ROWS and rows * number * dim >= LEAST_PRODUCTS
    return enough and 12 * number * (dim + -dim % PIECE) <= memory // MOST_MEMORY


def sums_in_float32(x: Tensor) -> bool:
    """Whether the device of `x` sums products of bfloat16 in float32.

    NVIDIA GPUs do since Ampere; torch supports it since 2.8.
    """
    return x.is_cuda and _sums_in_float32_on(x.device)


@cache
def _sums_in_float32_on(gpu: torch.device) -> bool:
    able = torch.cuda.get_device_capability(gpu) >= (8, 0)
    return able and "dtype_out" in torch.ops.aten.mm.overloads()


def torch_rounds() -> bool:
    """Whether the user allowed torch to round the factors of float32 products on a GPU.

    Reads the newer setting of torch if there is one: once it was used, reading the older one fails.
    """
    setting = getattr(torch.backends.cuda.matmul, "fp32_precision", None)
    if setting is None:
        return torch.get_float32_matmul_precision() != "highest"
    return bool(setting == "tf32")
