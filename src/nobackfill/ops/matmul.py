"""Inner products of all pairs of queries and gallery rows, in a chosen precision."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import BFloat16, Float
from torch import Tensor

from nobackfill.errors import ConfigError
from nobackfill.ops.bf16x3 import (
    GALLERY,
    QUERY,
    is_worthwhile,
    six_parts,
    sums_in_float32,
    thirds,
    torch_rounds,
)

PRECISIONS = ("float32", "tf32", "bfloat16")
ALIGNED = 16  # numbers: 64 bytes of float32, a cache line
WIDE = 1024  # numbers; longer rows are padded to a multiple of `ALIGNED`
SUMMED = 8192  # rows that tensor cores add up at once; each sum loses bits with every addition


@contextmanager
def matmul_precision(precision: str) -> Iterator[None]:
    """Within the block, GPUs may use TF32 for matrix products if `precision` is "tf32".

    torch's older setting also changes the newer ones, which are restored afterwards.
    """
    if precision != "tf32" or torch_rounds():
        yield
        return
    newer = [
        (backend.matmul, backend.matmul.fp32_precision)
        for backend in (torch.backends.cuda, torch.backends.mkldnn)
        if hasattr(getattr(backend, "matmul", None), "fp32_precision")
    ]
    torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision("highest")
        for setting, before in newer:
            setting.fp32_precision = before


def inner_products(
    query: Float[Tensor, "query dim"],
    gallery: Float[Tensor, "gallery dim"],
    out: Float[Tensor, "query gallery"],
    precision: str = "float32",
) -> Float[Tensor, "query gallery"]:
    r"""Writes :math:`q_i^\top g_j` into `out`, at least in float32, and returns it.

    The precision is that of the factors; sums have that of `out`. "float32" leaves factors
    unchanged; "tf32" keeps 10 bits of the mantissa on GPUs that support it, "bfloat16" 7.
    """
    if precision == "bfloat16":
        return half_products(query.bfloat16(), gallery.bfloat16(), out)
    with matmul_precision(precision):
        return _multiply(query, gallery, out, parts_for(gallery))


def half_products(
    query: Float[Tensor, "query dim"],
    gallery: Float[Tensor, "gallery dim"],
    out: Float[Tensor, "query gallery"],
) -> Float[Tensor, "query gallery"]:
    """Inner products of half-precision factors, summed in the precision of `out`."""
    if out.dtype != torch.float32 or not sums_in_float32(query):
        return inner_products(query.to(out.dtype), gallery.to(out.dtype), out)
    return _multiply(query, gallery, out, aligned_parts(len(gallery)), out_dtype=out.dtype)


def _multiply(
    query: Tensor, gallery: Tensor, out: Tensor, parts: list[slice], **options: Any
) -> Tensor:
    """Multiplies with each part of the gallery; a single part without the cost of slicing."""
    if len(parts) == 1:
        return torch.mm(query, gallery.T, out=out, **options)
    for part in parts:
        torch.mm(query, gallery[part].T, out=out[:, part], **options)
    return out


def products_with(
    gallery: Float[Tensor, "gallery dim"],
    block: int,
    rows: int,
    precision: str = "float32",
    *,
    unit: bool = False,
) -> Callable[..., Float[Tensor, "query gallery"]]:
    """Prepares a gallery once for inner products with blocks of queries.

    On a GPU, float32 products run on tensor cores, see `nobackfill.ops.bf16x3`; rows of zeros pad
    the gallery to a multiple of 16. If TF32 is allowed, unit vectors are multiplied in float16,
    which keeps as many bits as TF32 (10) in half the memory. Values below 6e-5 lose up to 3e-8
    each.

    Args:
        gallery: One row per gallery item.
        block: Largest number of queries in a block.
        rows: Number of queries in all blocks together.
        precision: Precision of the factors, see `inner_products`.
        unit: Whether all vectors, including the queries, have unit length.

    Returns:
        A function from at most `block` queries to their products with all rows of the gallery, or
        with those from row `first`. All calls share one buffer: the products are valid until the
        next call.
    """
    number = len(gallery)
    block = min(block, rows)
    half = None
    if precision == "bfloat16":
        half = torch.bfloat16
    elif unit and gallery.dtype == torch.float32 and (precision == "tf32" or torch_rounds()):
        half = torch.float16
    if half is not None and sums_in_float32(gallery):
        side = gallery.to(half)
        if number % ALIGNED:  # padding copies
            side = F.pad(side, (0, 0, 0, -number % ALIGNED))
    elif precision == "float32" and is_worthwhile(rows, gallery):
        side = six_parts(gallery, GALLERY, -number % ALIGNED)
    else:
        buffer = empty_products(gallery, block, number)
        return lambda query, first=0: inner_products(
            query, gallery[first:], buffer[: len(query), first:], precision
        )
    out = gallery.new_empty(block, len(side))

    def products(query: Tensor, first: int = 0) -> Tensor:
        factors = six_parts(query, QUERY) if half is None else query.to(half)
        return half_products(factors, side[first:], out[: len(query), first:])[:, : number - first]

    return products


def sums_of_rows(
    weight: Float[Tensor, "rows columns"],
    values: Float[Tensor, "columns dim"],
    out: Float[Tensor, "rows dim"],
) -> Float[Tensor, "rows dim"]:
    r"""Adds :math:`\sum_j w_{ij} v_j` to `out`, and returns it."""
    parts = parts_for(values)
    if len(parts) == 1:
        return out.addmm_(weight, values)
    for part in parts:
        out.addmm_(weight[:, part], values[part])
    return out


def masked_sums(
    mask: BFloat16[Tensor, "rows columns"],
    values: BFloat16[Tensor, "columns parts_and_dim"],
    out: Float[Tensor, "rows dim"],
) -> Float[Tensor, "rows dim"]:
    r"""Adds :math:`\sum_j m_{ij} v_j` to `out` on tensor cores, and returns it.

    The mask consists of ones and zeros, which bfloat16 holds exactly. The values are those of
    `three_parts`, so the sums are those of float32 numbers.
    """
    dim = out.shape[1]
    for columns, part in zip(mask.split(SUMMED, dim=1), values.split(SUMMED), strict=True):
        if sums_in_float32(mask):
            sums = torch.mm(columns, part, out_dtype=torch.float32)
        else:
            sums = columns.float() @ part.float()
        out += sums.unflatten(1, (3, -1)).sum(dim=1)[:, :dim]
    return out


def three_parts(x: Float[Tensor, "rows dim"]) -> BFloat16[Tensor, "rows parts_and_dim"]:
    """Splits each row into three bfloat16 rows that sum to it, padded and side by side."""
    return torch.cat([F.pad(part, (0, -x.shape[1] % ALIGNED)) for part in thirds(x)], dim=1)


def parts_for(gallery: Float[Tensor, "gallery dim"]) -> list[slice]:
    """Returns `aligned_parts` on GPUs that use tensor cores: all but float32 without TF32."""
    if gallery.is_cuda and (gallery.dtype != torch.float32 or torch_rounds()):
        return aligned_parts(len(gallery))
    return [slice(0, len(gallery))]


def aligned_parts(columns: int) -> list[slice]:
    """Splits many columns into a multiple of 16 and the rest.

    GPUs have their fastest tensor-core kernels for such numbers only: 24,393 columns take less
    than half the time as 24,384 and 9.
    """
    whole = columns - columns % ALIGNED
    if columns < WIDE or whole == columns:
        return [slice(0, columns)]
    return [slice(0, whole), slice(whole, columns)]


def empty_products(
    query: Float[Tensor, "query dim"], rows: int, columns: int
) -> Float[Tensor, "rows columns"]:
    """Returns an empty result for `inner_products` whose rows start at cache lines.

    CPUs write such rows up to 1.7 times as fast as unaligned ones; GPUs have their fastest kernels
    for such rows only.
    """
    unused = -columns % ALIGNED if columns >= WIDE else 0
    return query.new_empty(rows, columns + unused)[:, :columns]


def check_precision(precision: str) -> None:
    """Raises if a precision has an unknown name."""
    if precision not in PRECISIONS:
        raise ConfigError(f"precision must be one of {', '.join(PRECISIONS)}, not {precision!r}.")
