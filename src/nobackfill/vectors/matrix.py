"""The vectors themselves: a tensor of floats, of which every row can be compared."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy.typing import NDArray
from torch import Tensor

from nobackfill.errors import DataError

PRECISIONS = (torch.float16, torch.float32, torch.float64)

BLOCK = 2**22  # how many numbers are looked at in one go


def as_matrix(vectors: Tensor | NDArray[Any]) -> Float[Tensor, "rows dim"]:
    """Returns the vectors as a tensor with at least one row, without a copy where that can be."""
    if isinstance(vectors, np.ndarray):
        vectors = from_numpy(vectors)
    if vectors.dtype not in PRECISIONS:
        raise wrong_precision(str(vectors.dtype))
    if vectors.ndim != 2 or 0 in vectors.shape:
        raise DataError(
            f"wanted vectors of the shape (items, dim) with at least one of each, but got "
            f"{tuple(vectors.shape)}. Stack them as rows; a single one by `vector[None]`."
        )
    return vectors.detach()


def from_numpy(array: NDArray[Any]) -> Tensor:
    """Returns a tensor on the same memory; on a copy where torch cannot use that memory."""
    native = array.astype(array.dtype.newbyteorder("="), copy=False)
    if native.dtype not in (np.float16, np.float32, np.float64):
        raise wrong_precision(str(array.dtype))
    if not native.flags.writeable or min(native.strides, default=0) < 0:
        native = native.copy()
    return torch.from_numpy(native)


def wrong_precision(came: str) -> DataError:
    """Returns the error for numbers that are not float16, float32 or float64."""
    return DataError(
        f"wanted vectors of float16, float32 or float64, but got {came}. Convert them, e.g. to "
        f"float32."
    )


def check_rows(vectors: Float[Tensor, "rows dim"], ids: NDArray[Any]) -> None:
    """Refuses vectors that have no direction: with NaN, with infinity, or zero throughout."""
    for start, block in blocks(vectors):
        refuse(~block.isfinite().all(dim=1), start, ids, "NaN or infinite numbers in them")
        refuse(~block.any(dim=1), start, ids, "only zeros in them")


def blocks(vectors: Float[Tensor, "rows dim"]) -> Iterator[tuple[int, Float[Tensor, "block dim"]]]:
    """Yields the vectors a few rows at a time, each time with the number of the first row."""
    step = max(1, BLOCK // vectors.shape[1])
    for start in range(0, len(vectors), step):
        yield start, vectors[start : start + step]


def refuse(bad: Bool[Tensor, " block"], start: int, ids: NDArray[Any], fault: str) -> None:
    """Raises an error that names the first bad row of a block by its id."""
    if bad.any():
        row = start + int(bad.nonzero()[0])
        raise DataError(
            f"wanted vectors with a direction, but there are some with {fault}, the first being "
            f"that of id {ids[row].item()!r} (row {row}). Embed these items again, or drop them."
        )
