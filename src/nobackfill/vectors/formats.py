"""Reading and writing files of vectors in the format that the suffix names."""

import zipfile
import zlib
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow as pa
from safetensors import SafetensorError

from nobackfill.core.atomic_files import replacing
from nobackfill.errors import DataError
from nobackfill.vectors.column_names import ANY, Columns
from nobackfill.vectors.contents import Contents
from nobackfill.vectors.paths import TABLES, Place, files_of
from nobackfill.vectors.space import path_beside

FORMATS = {".parquet": "parquet", ".safetensors": "safetensors", ".npz": "npz", ".npy": "npy"}

UNREADABLE = (  # exceptions of the readers for a file of another format
    OSError,
    ValueError,
    EOFError,
    KeyError,
    zipfile.BadZipFile,
    zlib.error,
    SafetensorError,
    pa.ArrowException,
)


def read_contents(path: Path, columns: Columns = ANY, *, keep_missing: bool = False) -> Contents:
    """Reads a file of vectors, or several files as one.

    Args:
        path: File, folder or pattern; see `nobackfill.vectors.paths`.
        columns: Names of columns, where they are known. The label may be missing.
        keep_missing: Whether a missing vector becomes a row of NaN rather than an error.
    """
    places = files_of(path)
    reader = _module(places[0].format)
    try:
        if places[0].format not in TABLES:
            contents: Contents = reader.read(places[0].path, columns)
            return contents
        from nobackfill.vectors.tabular import read_table

        shards = [replace(reader.open_shard(p.path), constants=p.constants) for p in places]
        return read_table(shards, columns, keep_missing=keep_missing)
    except UNREADABLE as error:
        raise DataError(
            f"The contents cannot be read as {_shown(places, path)} ({error}). The file may be "
            f"truncated, or of another format: copy or write it again."
        ) from error


def write_contents(path: Path, contents: Contents) -> None:
    """Writes a file of vectors.

    Files that describe an older file of that name are removed before the new file takes its
    place, so that no description ever belongs to other vectors.
    """
    suffix = path.suffix.lower()
    if suffix not in FORMATS:
        raise DataError(
            f"{path.name!r} has {f'the suffix {suffix}' if suffix else 'no suffix'}, but vectors "
            f"are written as {', '.join(FORMATS)}. Pass a name with one of these."
        )
    writer = _module(FORMATS[suffix])
    is_bare = suffix == ".npy"
    try:
        with replacing(path) as unfinished:
            writer.write(unfinished, contents)
            path_beside(path).unlink(missing_ok=True)
            if is_bare:
                writer.fitted_path(path).unlink(missing_ok=True)
        if is_bare:
            writer.write_fitted(path, contents)
    except UnicodeError as error:
        raise DataError(
            f"An id, a label or a column has invalid Unicode text ({error}). Repair it, e.g. by "
            f"`text.encode(errors='replace').decode()`."
        ) from error


def _module(format: str) -> Any:
    """Imports the module of a format, which only its files need."""
    return import_module(f"nobackfill.vectors.{format}")


def _shown(places: list[Place], path: Path) -> str:
    """Returns the suffix of the files, for an error."""
    return "".join(places[0].path.suffixes[-2:] if len(places) == 1 else [path.suffix]) or "table"
