"""Reading and writing files of vectors in the format that the suffix names."""

import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
from safetensors import SafetensorError

from nobackfill.core.atomic_files import replacing
from nobackfill.core.config.suggest import suggest_path
from nobackfill.errors import DataError
from nobackfill.vectors import npy, npz, parquet, safetensors
from nobackfill.vectors.contents import Contents
from nobackfill.vectors.space import path_beside

Read = Callable[[Path], Contents]
Write = Callable[[Path, Contents], None]

FORMATS: dict[str, tuple[Read, Write]] = {
    ".parquet": (parquet.read, parquet.write),
    ".safetensors": (safetensors.read, safetensors.write),
    ".npz": (npz.read, npz.write),
    ".npy": (npy.read, npy.write),
}

UNREADABLE = (  # exceptions of the readers for a file of another format
    OSError,
    ValueError,
    EOFError,
    zipfile.BadZipFile,
    zlib.error,
    SafetensorError,
    pa.ArrowException,
)


def read_contents(path: Path) -> Contents:
    """Reads a file of vectors."""
    read, _ = _format_of(path)
    if not path.is_file():
        raise DataError(f"There is no such file. {suggest_path(path)}")
    try:
        return read(path)
    except UNREADABLE as error:
        raise DataError(
            f"The contents cannot be read as {path.suffix} ({error}). The file may be truncated, "
            f"or of another format: copy or write it again."
        ) from error


def write_contents(path: Path, contents: Contents) -> None:
    """Writes a file of vectors.

    Files that describe an older file of that name are removed before the new file takes its
    place, so that no description ever belongs to other vectors.
    """
    _, write = _format_of(path)
    try:
        with replacing(path) as unfinished:
            write(unfinished, contents)
            path_beside(path).unlink(missing_ok=True)
            if write is npy.write:
                npy.fitted_path(path).unlink(missing_ok=True)
        if write is npy.write:
            npy.write_fitted(path, contents)
    except UnicodeError as error:
        raise DataError(
            f"An id, a label or a column has invalid Unicode text ({error}). Repair it, e.g. by "
            f"`text.encode(errors='replace').decode()`."
        ) from error


def _format_of(path: Path) -> tuple[Read, Write]:
    """Returns the reader and the writer for a suffix."""
    suffix = path.suffix.lower()
    if suffix not in FORMATS:
        raise DataError(
            f"{path.name!r} has {f'the suffix {suffix}' if suffix else 'no suffix'}, but the "
            f"formats of vectors are {', '.join(FORMATS)}. Convert the file, or rename it."
        )
    return FORMATS[suffix]
