"""Inner products of all pairs, in the precision that is asked for."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from nobackfill.errors import ConfigError
from nobackfill.ops.bf16x3 import gallery_side, pay, query_side, sums_in_float32, torch_rounds

PRECISIONS = ("float32", "tf32", "bfloat16")
ALIGNED = 16  # numbers: 64 bytes of single precision, a line of the cache
WIDE = 1024  # numbers; rows from here on may end in unused ones, at most 15


@contextmanager
def matrix_products(precision: str) -> Iterator[None]:
    """For a while, GPUs may take 10 bits for matrix products, if that is asked for.

    The older setting of torch sets the newer ones too, and all tell the same meanwhile; newer ones
    are put back as they were.
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
    r"""Writes :math:`q_i^\top g_j` into `out`, and returns it.

    Args:
        query: One row each.
        gallery: One row each.
        out: In at least single precision.
        precision: In which factors are multiplied; sums are always in that of `out`. "float32" as
            they come; "tf32" with 10 bits after the point where a GPU can, "bfloat16" with 7.
    """
    if precision == "bfloat16":
        return half_products(query.bfloat16(), gallery.bfloat16(), out)
    with matrix_products(precision):
        parts = parts_for(gallery)
        if len(parts) == 1:  # as it is: cuts cost time, too
            return torch.mm(query, gallery.T, out=out)
        for part in parts:
            torch.mm(query, gallery[part].T, out=out[:, part])
    return out


def products_with(
    gallery: Float[Tensor, "gallery dim"],
    block: int,
    rows: int,
    precision: str = "float32",
    *,
    unit: bool = False,
) -> Callable[[Tensor], Tensor]:
    """Inner products with a gallery that is met block by block, by `rows` queries in all.

    The gallery is prepared once. On a GPU, float32 products run on tensor cores, see
    `nobackfill.ops.bf16x3`; rows of zeros pad the gallery to a multiple of 16. Where TF32 is
    allowed, unit vectors are multiplied in float16, which keeps as many bits as TF32 (10) in half
    the memory. Values below 6e-5 lose up to 3e-8 each.

    Args:
        gallery: One row each.
        block: The most queries that come at a time.
        rows: How many come in all.
        precision: See `inner_products`.
        unit: Whether all vectors, queries too, are of unit length.

    Returns:
        A function from at most `block` queries to their products. These share one buffer, which is
        yours until you ask for the next.
    """
    number = len(gallery)
    block = min(block, rows)
    half = _half_for(gallery, precision, unit=unit)
    if half is not None:
        side = gallery.to(half)
        if number % ALIGNED:  # what need not be filled up is not copied
            side = F.pad(side, (0, 0, 0, -number % ALIGNED))
    elif precision == "float32" and pay(rows, gallery):
        side = gallery_side(gallery, -number % ALIGNED)
    else:
        room = room_for_products(gallery, block, number)
        return lambda query: inner_products(query, gallery, room[: len(query)], precision)
    out = gallery.new_empty(block, len(side))

    def products(query: Tensor) -> Tensor:
        halves = query_side(query) if half is None else query.to(half)
        return half_products(halves, side, out[: len(query)])[:, :number]

    return products


def _half_for(
    gallery: Float[Tensor, "gallery dim"], precision: str, *, unit: bool
) -> torch.dtype | None:
    """In which half precision a gallery is to be multiplied, if in any."""
    if not sums_in_float32(gallery):
        return None
    if precision == "bfloat16":
        return torch.bfloat16
    rounded = precision == "tf32" or torch_rounds()
    return torch.float16 if rounded and unit and gallery.dtype == torch.float32 else None


def half_products(
    query: Float[Tensor, "query dim"],
    gallery: Float[Tensor, "gallery dim"],
    out: Float[Tensor, "query gallery"],
) -> Float[Tensor, "query gallery"]:
    """Inner products of numbers of half precision, summed in the precision of `out`."""
    if out.dtype != torch.float32 or not sums_in_float32(query):
        return inner_products(query.to(out.dtype), gallery.to(out.dtype), out)
    parts = aligned_parts(len(gallery))
    if len(parts) == 1:
        return torch.mm(query, gallery.T, out_dtype=out.dtype, out=out)
    for part in parts:
        torch.mm(query, gallery[part].T, out_dtype=out.dtype, out=out[:, part])
    return out


def sums_of_rows(
    weight: Float[Tensor, "rows columns"],
    values: Float[Tensor, "columns dim"],
    out: Float[Tensor, "rows dim"],
    *,
    fresh: bool = False,
) -> Float[Tensor, "rows dim"]:
    r"""Adds :math:`\sum_j w_{ij} v_j` to `out`, or writes it there, if `fresh`; returns `out`."""
    parts, kept = parts_for(values), 0 if fresh else 1
    if len(parts) == 1:
        return out.addmm_(weight, values, beta=kept)
    for part in parts:
        out.addmm_(weight[:, part], values[part], beta=kept)
        kept = 1
    return out


def parts_for(gallery: Float[Tensor, "gallery dim"]) -> list[slice]:
    """Those of `aligned_parts` where a GPU uses tensor cores: for all but float32 without TF32."""
    if gallery.is_cuda and (gallery.dtype != torch.float32 or torch_rounds()):
        return aligned_parts(len(gallery))
    return [slice(0, len(gallery))]


def aligned_parts(columns: int) -> list[slice]:
    """A multiple of 16 columns and the rest, where they are many; else all.

    GPUs have their fastest kernels for tensor cores for such numbers alone: of 24,393 columns,
    24,384 and then 9 take them less than half the time.
    """
    whole = columns - columns % ALIGNED
    if columns < WIDE or whole == columns:
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
