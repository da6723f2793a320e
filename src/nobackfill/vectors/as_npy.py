"""Vectors alone, as a bare array: `.npy`."""

from pathlib import Path

import numpy as np
from torch import Tensor

from nobackfill.errors import DataError
from nobackfill.vectors.contents import SPACE, Contents


def read(path: Path) -> Contents:
    """Maps the array into memory, copy on write: the file is never changed. Ids are row numbers."""
    vector = np.lib.format.open_memmap(path, mode="c")
    return Contents(vector, {"id": np.arange(len(vector) if vector.ndim else 0)}, {})


def write(path: Path, contents: Contents) -> None:
    """Writes the vectors, if there is nothing else to write."""
    check_bare(contents)
    assert isinstance(contents.vector, Tensor)
    with path.open("wb") as file:
        np.lib.format.write_array(file, contents.vector.numpy(), allow_pickle=False)


def check_bare(contents: Contents) -> None:
    """Refuses what a bare array cannot hold."""
    notes = set(contents.notes) - {SPACE}  # which lies beside the file
    kept_elsewhere = [*(name for name in contents.columns if name != "id"), *sorted(notes)]
    ids = contents.columns["id"]
    if ids.dtype.kind != "i" or not np.array_equal(ids, np.arange(len(ids))):
        kept_elsewhere = ["ids other than the row numbers", *kept_elsewhere]
    if kept_elsewhere:
        raise DataError(
            f".npy holds vectors and nothing else, but they also have {', '.join(kept_elsewhere)}. "
            f"Save as .parquet, .safetensors or .npz."
        )
