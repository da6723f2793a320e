"""Inner products of all pairs, in the precision that is asked for."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from jaxtyping import Float
from torch import Tensor

from nobackfill.errors import ConfigError

PRECISIONS = ("float32", "tf32", "bfloat16")
ALIGNED = 16  # numbers: 64 bytes of single precision, a line of the cache
WIDE = 1024  # numbers; rows from here on may end in unused ones, at most 15


@contextmanager
def matrix_products(precision: str) -> Iterator[None]:
    """For a while, GPUs may take 10 bits for matrix products, if that is asked for."""
    before = torch.get_float32_matmul_precision()
    if precision == "tf32":
        torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        if precision == "tf32":
            torch.set_float32_matmul_precision(before)


def inner_products(
    query: Float[Tensor, "query dim"],
    gallery: Float[Tensor, "gallery dim"],
    out: Float[Tensor, "query gallery"],
    precision: str = "float32",
) -> Float[Tensor, "query gallery"]:
    r"""Writes :math:`q_i^\top g_j` into `out`, and returns it.

    Args:
        query: One row each.
        gallery: One row each.
        out: In at least single precision.
        precision: In which factors are multiplied; sums are always in that of `out`. "float32" as
            they come; "tf32" with 10 bits after the point where a GPU can, "bfloat16" with 7.
    """
    half = precision == "bfloat16"
    if half:
        query, gallery = query.bfloat16(), gallery.bfloat16()
    on_tensor_cores = half and query.is_cuda
    if half and not on_tensor_cores:
        query, gallery = query.to(out.dtype), gallery.to(out.dtype)
    with matrix_products(precision):
        for part in aligned_parts(len(gallery), query.device):
            if on_tensor_cores:
                torch.mm(query, gallery[part].T, out_dtype=out.dtype, out=out[:, part])
            else:
                torch.mm(query, gallery[part].T, out=out[:, part])
    return out


def sums_of_rows(
    weight: Float[Tensor, "rows columns"],
    values: Float[Tensor, "columns dim"],
    out: Float[Tensor, "rows dim"],
) -> Float[Tensor, "rows dim"]:
    r"""Adds :math:`\sum_j w_{ij} v_j` to `out`, and returns it."""
    for part in aligned_parts(len(values), values.device):
        out.addmm_(weight[:, part], values[part])
    return out


def aligned_parts(columns: int, device: torch.device) -> list[slice]:
    """All columns, or on a GPU a multiple of 16 and the rest, where they are many.

    GPUs have their fastest kernels for tensor cores for such numbers alone: of 24,393 columns,
    24,384 and then 9 take them less than half the time.
    """
    whole = columns - columns % ALIGNED
    if device.type != "cuda" or columns < WIDE or whole == columns:
        return [slice(0, columns)]
    return [slice(0, whole), slice(whole, columns)]


def room_for_products(
    query: Float[Tensor, "query dim"], rows: int, columns: int
) -> Float[Tensor, "rows columns"]:
    """An empty result for `inner_products`, each row of it starting at a line of the cache.

    CPUs write products up to 1.7 times as fast into such rows as into rows that start anywhere, as
    they do where the number of columns is odd; GPUs have their fastest kernels for such rows alone.
    """
    unused = -columns % ALIGNED if columns >= WIDE else 0
    return query.new_empty(rows, columns + unused)[:, :columns]


def check_precision(precision: str) -> None:
    """Refuses what is no name of a precision."""
    if precision not in PRECISIONS:
        raise ConfigError(
            f"wanted precision to be one of {', '.join(PRECISIONS)}, but got {precision!r}."
        )
