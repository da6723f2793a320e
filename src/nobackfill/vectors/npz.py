"""The format `.npz`: vectors and columns as arrays in a zip archive."""

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from nobackfill.vectors.column_names import ANY, Columns
from nobackfill.vectors.contents import NOTES, Contents
from nobackfill.vectors.named_arrays import choose_arrays


def read(path: Path, columns: Columns = ANY) -> Contents:
    """Loads every array of the archive; arrays that require a pickle are refused."""
    with path.open("rb") as file:
        archive = np.load(file, allow_pickle=False)
        if not isinstance(archive, np.lib.npyio.NpzFile):
            raise ValueError("it is a single array, as in .npy")
        arrays = {name: _array(archive, name) for name in archive.files}
    if others := [name for name, array in arrays.items() if not isinstance(array, np.ndarray)]:
        raise ValueError(f"{', '.join(others)}: not an array")
    notes = {name: str(arrays.pop(name)) for name in archive.files if name.startswith(NOTES)}
    return choose_arrays(arrays, columns, notes)


def read_notes(path: Path) -> dict[str, str]:
    """Reads the texts about the whole file."""
    with np.load(path, allow_pickle=False) as archive:
        names = [name for name in archive.files if name.startswith(NOTES)]
        return {name: str(_array(archive, name)) for name in names}


def _array(archive: Any, name: str) -> Any:
    """Loads an array."""
    try:
        return archive[name]
    except ValueError as error:
        if "pickle" not in str(error):
            raise
        raise ValueError(
            f"`{name}` contains Python objects, which are never loaded: save it as text, by "
            f"`{name}.astype(str)`, or as numbers"
        ) from None


def write(path: Path, contents: Contents) -> None:
    """Writes the same as `np.savez`, which cannot write a column named `file`."""
    assert isinstance(contents.vector, Tensor)
    notes = {name: np.array(text) for name, text in contents.notes.items()}
    arrays = {**contents.columns, "vector": contents.vector.numpy(), **notes}
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)
