"""The contents of a file of vectors, in the form that all file formats read and write."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray
from torch import Tensor

from nobackfill.errors import DataError

NOTES = "nobackfill."
SPACE = NOTES + "space"
COMPATIBLE_DIM = NOTES + "compatible_dim"
FITTED = "fitted"  # column: whether a head was fitted on the item


@dataclass(frozen=True, eq=False)
class Contents:
    """The unchecked contents of a file of vectors.

    Attributes:
        vector: One row per item; for writing a contiguous float16 or float32 tensor on the CPU.
        columns: `id`, optionally `label` and others: one value per row.
        notes: Text about the whole file, under `SPACE` and `COMPATIBLE_DIM`.
    """

    vector: Tensor | NDArray[Any]
    columns: dict[str, NDArray[Any]]
    notes: dict[str, str]


def require_id_and_vector(columns: Iterable[str]) -> None:
    """Raises if a file lacks `id` or `vector`."""
    names = sorted(columns)
    if missing := [f"`{name}`" for name in ("id", "vector") if name not in names]:
        raise DataError(
            f"The file has no column {' and no '.join(missing)}. Rename or add it; the columns are "
            f"{', '.join(names) or 'none'}."
        )
