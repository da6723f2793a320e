"""The format `.npz`: vectors and columns as arrays in a zip archive."""

import zipfile
from pathlib import Path

import numpy as np
from torch import Tensor

from nobackfill.vectors.contents import NOTES, Contents, require_id_and_vector


def read(path: Path) -> Contents:
    """Loads every array of the archive; arrays that require a pickle are refused."""
    with path.open("rb") as file:
        archive = np.load(file, allow_pickle=False)
        if not isinstance(archive, np.lib.npyio.NpzFile):
            raise ValueError("it is a single array, as in .npy")
        require_id_and_vector(archive.files)
        arrays = {name: archive[name] for name in archive.files}
    if others := [name for name, array in arrays.items() if not isinstance(array, np.ndarray)]:
        raise ValueError(f"{', '.join(others)}: not an array")
    return Contents(
        vector=arrays.pop("vector"),
        columns={name: array for name, array in arrays.items() if not name.startswith(NOTES)},
        notes={name: str(array) for name, array in arrays.items() if name.startswith(NOTES)},
    )


def write(path: Path, contents: Contents) -> None:
    """Writes the same as `np.savez`, which cannot write a column named `file`."""
    assert isinstance(contents.vector, Tensor)
    notes = {name: np.array(text) for name, text in contents.notes.items()}
    arrays = {**contents.columns, "vector": contents.vector.numpy(), **notes}
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)
