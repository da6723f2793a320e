"""The format `.npz`: vectors and columns as arrays in a zip archive.

Text of very different lengths is two arrays; see `packed_text.py`.
"""

import zipfile
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from nobackfill.core.memory import check_memory
from nobackfill.errors import DataError
from nobackfill.vectors.column_names import ANY, Columns
from nobackfill.vectors.contents import NOTES, Contents
from nobackfill.vectors.named_arrays import choose_arrays
from nobackfill.vectors.packed_text import BYTES, OFFSETS, pack_text, unpack_texts

LARGE = 2**28  # bytes that any archive may unpack to
MOST_RATIO = 100  # times the archive that more may be


def read(path: Path, columns: Columns = ANY) -> Contents:
    """Loads every array of the archive; arrays that require a pickle are refused."""
    with path.open("rb") as file:
        check_sizes(file, path.stat().st_size)
        archive = np.load(file, allow_pickle=False)
        if not isinstance(archive, np.lib.npyio.NpzFile):
            raise ValueError("it is a single array, as in .npy")
        arrays = {name: _array(archive, name) for name in archive.files}
    if others := [name for name, array in arrays.items() if not isinstance(array, np.ndarray)]:
        raise ValueError(f"{', '.join(others)}: not an array")
    notes = {name: str(arrays.pop(name)) for name in archive.files if name.startswith(NOTES)}
    return choose_arrays(unpack_texts(arrays), columns, notes)


def check_sizes(file: Any, size: int) -> None:
    """Raises if an array is not as large as its header states, or all need too much memory.

    NumPy allocates as much as a header states. Archives of compressed vectors may be less than half
    as large as the vectors, but not a thousandth.
    """
    total = 0
    with zipfile.ZipFile(file) as archive:
        for member in archive.infolist():
            total += member.file_size
            if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise DataError(
                    f"{member.filename} is compressed in a way that NumPy does not write. Write "
                    f"the archive again, by `np.savez` or `np.savez_compressed`."
                )
            if member.filename.endswith(".npy"):
                with archive.open(member) as array:
                    check_array(array, member.file_size, member.filename)
    if total > max(LARGE, MOST_RATIO * size):
        raise DataError(
            f"The archive has {size:,} bytes and would unpack to {total:,}. It is no archive of "
            f"vectors: write it again."
        )
    check_memory(total, "The archive", "Write it as .npy or .safetensors, which are mapped.")
    file.seek(0)


def check_array(file: Any, size: int, name: str) -> None:
    """Raises if a header states another size than that of the file."""
    version = np.lib.format.read_magic(file)
    read = {(1, 0): np.lib.format.read_array_header_1_0}.get(
        version, np.lib.format.read_array_header_2_0
    )
    shape, _, dtype = read(file)
    if not dtype.hasobject and prod(shape) * dtype.itemsize != size - file.tell():
        raise DataError(
            f"The header of {name} says {prod(shape) * dtype.itemsize:,} bytes, but there are "
            f"{size - file.tell():,}. The file is damaged: write it again."
        )


def read_notes(path: Path) -> dict[str, str]:
    """Reads the texts about the whole file."""
    with path.open("rb") as file:
        check_sizes(file, path.stat().st_size)
        archive = np.load(file, allow_pickle=False)
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
    arrays: dict[str, Any] = {}
    for name, array in contents.columns.items():
        if array.dtype.kind == "T":  # which `.npy` stores as a pickle
            arrays[name + BYTES], arrays[name + OFFSETS] = map(np.asarray, pack_text(array))
        else:
            arrays[name] = array
    arrays |= {"vector": contents.vector.numpy(), **notes}
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)
