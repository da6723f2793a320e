"""Vectors alone, as a bare array: `.npy`.

Which of them a head was fitted on lies beside, in `NAME.fitted.json`: a 1 or a 0 for each row.
"""

import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from nobackfill.core.atomic_files import write_text
from nobackfill.errors import DataError
from nobackfill.vectors.contents import FITTED, SPACE, Contents


def read(path: Path) -> Contents:
    """Maps the array into memory, copy on write: the file is never changed. Ids are row numbers."""
    vector = np.lib.format.open_memmap(path, mode="c")
    ids = np.arange(len(vector) if vector.ndim else 0)
    return Contents(vector, {"id": ids, **read_fitted(path)}, {})


def write(path: Path, contents: Contents) -> None:
    """Writes the vectors, if there is nothing else to write."""
    check_bare(contents)
    assert isinstance(contents.vector, Tensor)
    with path.open("wb") as file:
        np.lib.format.write_array(file, contents.vector.numpy(), allow_pickle=False)


def check_bare(contents: Contents) -> None:
    """Refuses what a bare array cannot hold."""
    notes = set(contents.notes) - {SPACE}  # which lies beside the file
    columns = set(contents.columns) - {"id", *fitted_in(contents)}  # likewise
    kept_elsewhere = [*(name for name in contents.columns if name in columns), *sorted(notes)]
    ids = contents.columns["id"]
    if ids.dtype.kind != "i" or not np.array_equal(ids, np.arange(len(ids))):
        kept_elsewhere = ["ids other than the row numbers", *kept_elsewhere]
    if kept_elsewhere:
        raise DataError(
            f".npy holds vectors and nothing else, but they also have {', '.join(kept_elsewhere)}. "
            f"Save as .parquet, .safetensors or .npz."
        )


def fitted_in(contents: Contents) -> dict[str, NDArray[np.bool_]]:
    """The column that tells which vectors a head was fitted on, if there is one."""
    known = contents.columns.get(FITTED)
    return {} if known is None or known.dtype.kind != "b" else {FITTED: known}


def beside(path: Path) -> Path:
    """Where it is told which vectors of a file a head was fitted on."""
    return path.with_suffix(".fitted.json")


def write_beside(path: Path, contents: Contents) -> None:
    """Tells which vectors of the file at `path` a head was fitted on, if that is known."""
    for name, fitted in fitted_in(contents).items():
        rows = "".join("1" if one else "0" for one in fitted.tolist())
        write_text(beside(path), json.dumps({name: rows}) + "\n")


def read_fitted(path: Path) -> dict[str, NDArray[np.bool_]]:
    """Reads what `write_beside` wrote, as a column; none where nothing is told."""
    if not beside(path).exists():
        return {}
    try:
        rows = json.loads(beside(path).read_text(encoding="utf-8"))[FITTED]
        known = set(rows) <= {"0", "1"}
    except (OSError, ValueError, KeyError, TypeError):
        known = False
    if not known:
        raise DataError(
            f"wanted a 1 or a 0 for each row under `{FITTED}` in {beside(path).name}, but it holds "
            f"something else. Write the file again, or remove it."
        )
    return {FITTED: np.array([one == "1" for one in rows], dtype=np.bool_)}
