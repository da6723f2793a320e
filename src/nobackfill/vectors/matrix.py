"""Checks of the vectors themselves: a matrix of floats whose rows have a direction."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy.typing import NDArray
from torch import Tensor

from nobackfill.errors import DataError

BLOCK = 2**22  # numbers per block
SHORTEST, LONGEST = 1e-12, 1e19  # lengths that a vector is divided by: float32 holds their squares

Data = Any  # Vectors, an array, a tensor, nested lists, a table or a path; see `as_vectors`


def as_matrix(vectors: Tensor | NDArray[Any]) -> Float[Tensor, "rows dim"]:
    """Returns the vectors as a tensor with at least one row, without a copy if possible."""
    precision = str(vectors.dtype).removeprefix("torch.")
    if isinstance(vectors, np.ndarray):
        precision = vectors.dtype.newbyteorder("=").name
    if precision not in ("float16", "float32", "float64"):
        raise DataError(
            f"Vectors must be float16, float32 or float64, not {precision}. Convert them, e.g. to "
            f"float32."
        )
    if isinstance(vectors, np.ndarray):  # torch shares the memory, unless it cannot
        vectors = vectors.astype(precision, copy=False)
        if not vectors.flags.writeable or min(vectors.strides, default=0) < 0:
            vectors = vectors.copy()
        vectors = torch.from_numpy(vectors)
    if vectors.ndim != 2 or 0 in vectors.shape:
        raise DataError(
            f"Vectors must have the shape (items, dim) with at least one of each, not "
            f"{tuple(vectors.shape)}. Stack them as rows; a single one by `vector[None]`."
        )
    return vectors.detach()


def check_rows(vectors: Float[Tensor, "rows dim"], ids: NDArray[Any]) -> None:
    """Raises if a vector has no direction, or none in float32.

    It contains NaN or infinity, is zero, or its length is out of range: it could not be scaled to
    unit length, and would be equal to any other such vector.
    """
    for start, block in blocks(vectors):
        size = largest_of(block)
        faults = {
            "contains NaN or infinite values": ~size.isfinite(),
            "contains only zeros": size == 0,
        }
        for fault, bad in faults.items():
            if bad.any():
                row = start + int(bad.nonzero()[0])
                raise DataError(
                    f"The vector of id {ids[row].item()!r} (row {row}) {fault}, so it has no "
                    f"direction. Embed such items again, or drop them: --drop-invalid leaves them "
                    f"out (in Python `load_vectors(path, drop_invalid=True)`)."
                )
        if (bad := ~in_range(size, block.shape[1])).any():
            row = start + int(bad.nonzero()[0])
            largest = float(size[row - start])
            length = largest * float((vectors[row].double() / largest).norm())
            raise DataError(
                f"The length of a vector is out of the range of float32: id {ids[row].item()!r} "
                f"(row {row}) has {length:g}. Scale the vectors, or drop it."
            )


def are_valid(vectors: Float[Tensor, "rows dim"]) -> NDArray[np.bool_]:
    """Returns for each vector whether it has a direction."""
    valid = np.empty(len(vectors), dtype=np.bool_)
    for start, block in blocks(vectors):
        good = in_range(largest_of(block), block.shape[1])
        valid[start : start + len(block)] = good.cpu().numpy()
    return valid


def largest_of(block: Float[Tensor, "rows dim"]) -> Float[Tensor, " rows"]:
    """Returns the largest absolute value of each row, at least in float32; NaN if it has one."""
    largest = torch.maximum(block.amax(dim=1), -block.amin(dim=1))
    return largest.to(torch.promote_types(largest.dtype, torch.float32))


def in_range(largest: Float[Tensor, " rows"], dim: int) -> Bool[Tensor, " rows"]:
    r"""Returns whether rows can be scaled to unit length in float32.

    The length of a row is between its largest absolute value :math:`m` and
    :math:`m \sqrt{\mathrm{dim}}`.

    Example:
        >>> in_range(torch.tensor([1.0, 1e-30, 1e30, float("nan")]), 4)
        tensor([ True, False, False, False])
    """
    valid: Bool[Tensor, " rows"] = (largest >= SHORTEST) & (largest * dim**0.5 <= LONGEST)
    return valid


def blocks(vectors: Float[Tensor, "rows dim"]) -> Iterator[tuple[int, Float[Tensor, "block dim"]]]:
    """Yields blocks of rows, each with the number of its first row."""
    step = max(1, BLOCK // vectors.shape[1])
    for start in range(0, len(vectors), step):
        yield start, vectors[start : start + step]
