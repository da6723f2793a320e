"""What every file format reads and writes: vectors, named columns, and notes about them."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray
from torch import Tensor

from nobackfill.errors import DataError

NOTES = "nobackfill."
SPACE = NOTES + "space"
COMPATIBLE_DIM = NOTES + "compatible_dim"
FITTED = "fitted"  # the column that tells which items a head was fitted on


@dataclass(frozen=True)
class Contents:
    """A file of vectors, unchecked.

    Attributes:
        vector: One row per item; when written a float16 or float32 tensor, contiguous, on the CPU.
        columns: `id`, and where known `label` and others: one value per row.
        notes: Text that is about the whole file, under `SPACE` and `COMPATIBLE_DIM`.
    """

    vector: Tensor | NDArray[Any]
    columns: dict[str, NDArray[Any]]
    notes: dict[str, str]


def require_id_and_vector(found: Iterable[str]) -> None:
    """Refuses a file that lacks one of the two columns that nothing can be done without."""
    names = sorted(found)
    if missing := [name for name in ("id", "vector") if name not in names]:
        raise DataError(
            f"a file of vectors wants the columns `id` and `vector`, but there is no "
            f"{' and no '.join(f'`{name}`' for name in missing)}; found: "
            f"{', '.join(names) or 'nothing'}. Rename the column that holds it, or add it."
        )
