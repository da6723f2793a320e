"""Files of vectors, by suffix: read whatever came, or say why not; written whole or not at all."""

import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
from safetensors import SafetensorError

from nobackfill.core.atomic_files import replacing
from nobackfill.errors import DataError
from nobackfill.vectors import npy as as_npy
from nobackfill.vectors import npz as as_npz
from nobackfill.vectors import parquet as as_parquet
from nobackfill.vectors import safetensors as as_safetensors
from nobackfill.vectors.contents import Contents
from nobackfill.vectors.space import path_beside

Read = Callable[[Path], Contents]
Write = Callable[[Path, Contents], None]

FORMATS: dict[str, tuple[Read, Write]] = {
    ".parquet": (as_parquet.read, as_parquet.write),
    ".safetensors": (as_safetensors.read, as_safetensors.write),
    ".npz": (as_npz.read, as_npz.write),
    ".npy": (as_npy.read, as_npy.write),
}

UNREADABLE = (  # what the readers raise for a file that is none of theirs
    OSError,
    ValueError,
    EOFError,
    zipfile.BadZipFile,
    zlib.error,
    SafetensorError,
    pa.ArrowException,
)


def read_contents(path: Path) -> Contents:
    """Reads a file by its suffix, or says why that cannot be."""
    read, _ = format_of(path)
    if not path.is_file():
        raise DataError("wanted a file of vectors, but there is no such file. Check the path.")
    try:
        return read(path)
    except UNREADABLE as error:
        raise DataError(
            f"wanted a {path.suffix} file, but the contents cannot be read as one ({error}). It "
            f"may be cut short, or another format under this name: copy or write it again."
        ) from error


def write_contents(path: Path, contents: Contents) -> None:
    """Writes a file by its suffix.

    What lay beside an older file of that name goes away before the new file takes its place: no
    claim is ever left beside vectors it was not made for.
    """
    _, write = format_of(path)
    try:
        with replacing(path) as unfinished:
            write(unfinished, contents)
            path_beside(path).unlink(missing_ok=True)
            if write is as_npy.write:
                as_npy.beside(path).unlink(missing_ok=True)
        if write is as_npy.write:
            as_npy.write_beside(path, contents)
    except UnicodeError as error:
        raise DataError(
            f"wanted Unicode text, but an id, a label or a column has half a character in it "
            f"({error}). Repair it, e.g. by `text.encode(errors='replace').decode()`."
        ) from error


def format_of(path: Path) -> tuple[Read, Write]:
    """Returns how to read and how to write the format that a path's suffix names."""
    suffix = path.suffix.lower()
    if suffix not in FORMATS:
        raise DataError(
            f"vectors are kept as {', '.join(FORMATS)}, but {path.name!r} has "
            f"{f'the suffix {suffix}' if suffix else 'no suffix'}. Convert the file, or choose "
            f"another name."
        )
    return FORMATS[suffix]
