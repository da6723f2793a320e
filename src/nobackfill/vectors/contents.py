"""The contents of a file of vectors, in the form that all file formats read and write."""

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray
from torch import Tensor

from nobackfill.vectors.columns import FLAGS

NOTES = "nobackfill."
SPACE = NOTES + "space"
COMPATIBLE_DIM = NOTES + "compatible_dim"
FITTED = "fitted"  # column: whether a head was fitted on the item
MEANINGFUL = (*FLAGS, FITTED, "split", "camera", "modality")  # columns that are never left out


@dataclass(frozen=True, eq=False)
class Contents:
    """The unchecked contents of a file of vectors.

    Attributes:
        vector: One row per item; for writing a contiguous float16 or float32 tensor on the CPU.
        columns: `id`, optionally `label` and others: one value per row.
        notes: Text about the whole file, under `SPACE` and `COMPATIBLE_DIM`.
        remarks: Sentences for the user on what was guessed or left out in reading.
        has_ids: Whether the ids are in the file; otherwise they are row numbers.
    """

    vector: Tensor | NDArray[Any]
    columns: dict[str, NDArray[Any]]
    notes: dict[str, str]
    remarks: tuple[str, ...] = ()
    has_ids: bool = True
