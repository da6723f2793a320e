"""Reading and writing files of vectors in the format that the suffix names."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

from nobackfill.core.atomic_files import check_is_file, replacing
from nobackfill.errors import DataError, NobackfillError
from nobackfill.vectors.beside import announce, bind_to_present, settle
from nobackfill.vectors.column_names import ANY, Columns
from nobackfill.vectors.contents import Contents
from nobackfill.vectors.paths import TABLES, Place, files_of, format_of

FORMATS = {".parquet": "parquet", ".safetensors": "safetensors", ".npz": "npz", ".npy": "npy"}
WITH_NOTES = frozenset({"parquet", "safetensors", "npz", "ipc"})  # formats that have metadata


def read_contents(path: Path, columns: Columns = ANY, *, keep_missing: bool = False) -> Contents:
    """Reads a file of vectors, or several files as one.

    Args:
        path: File, folder or pattern; see `nobackfill.vectors.paths`.
        columns: Names of columns, where they are known. The label may be missing.
        keep_missing: Whether a missing vector becomes a row of NaN rather than an error.
    """
    with readable_errors(path):
        places = files_of(path)
    with readable_errors(path, _shown(places, path)):
        reader = _module(places[0].format)
        if places[0].format not in TABLES:
            contents: Contents = reader.read(places[0].path, columns)
            return contents
        from nobackfill.vectors.tabular import read_table

        shards = [replace(reader.open_shard(p.path), constants=p.constants) for p in places]
        return read_table(shards, columns, keep_missing=keep_missing)


@contextmanager
def readable_errors(path: Path, shown: str = "") -> Iterator[None]:
    """Raises a DataError for any error of a reader: each library raises its own kinds.

    Args:
        path: File or folder that is read.
        shown: Format of the file, for errors.
    """
    try:
        yield
    except NobackfillError:
        raise
    except MemoryError as error:
        raise DataError(
            f"There is not enough memory to read it ({error}). Read it on a larger machine, or "
            f"write it as .npy or .safetensors, which are mapped into memory."
        ) from error
    except OSError as error:
        if error.errno is None:  # raised by pyarrow
            raise _unreadable(shown or path.suffix, error) from error
        raise DataError(
            f"It cannot be read: {error.strerror}. Check the path and its permissions."
        ) from error
    except Exception as error:
        raise _unreadable(shown or path.suffix, error) from error


def _unreadable(shown: str, error: Exception) -> DataError:
    """Returns the error for contents that a library cannot read."""
    reason = " ".join(f"{error}".split())[:300] or type(error).__name__
    return DataError(
        f"The contents cannot be read as {shown} ({reason}). The file may be truncated, or of "
        f"another format: copy or write it again."
    )


def write_contents(path: Path, contents: Contents) -> None:
    """Writes a file of vectors, with its record: within the file if the format can hold it.

    A killed process leaves the old contents or the new ones, each with its own record.
    """
    suffix = path.suffix.lower()
    if suffix not in FORMATS:
        raise DataError(
            f"{path.name!r} has {f'the suffix {suffix}' if suffix else 'no suffix'}, but vectors "
            f"are written as {', '.join(FORMATS)}. Pass a name with one of these."
        )
    writer = _module(FORMATS[suffix])
    try:
        from nobackfill.core.locks import lock_output

        with lock_output(path):
            check_is_file(path)
            bind_to_present(path)
            with replacing(path) as unfinished:
                writer.write(unfinished, contents)
                if suffix == ".npy":
                    announce(path, unfinished, writer.records(contents))
            settle(path)
    except UnicodeError as error:
        raise DataError(
            f"An id, a label or a column has invalid Unicode text ({error}). Repair it, e.g. by "
            f"`text.encode(errors='replace').decode()`."
        ) from error


def read_notes(path: Path) -> dict[str, str]:
    """Reads the texts about a whole file from its metadata, without the vectors."""
    if format_of(path) not in WITH_NOTES or not path.is_file():
        return {}
    reader = _module(str(format_of(path)))
    try:
        with readable_errors(path):
            notes: dict[str, str] = reader.read_notes(path)
            return notes
    except DataError as error:
        raise DataError(f"{path}: {error}") from error


def _module(format: str) -> Any:
    """Imports the module of a format, which only its files need."""
    return import_module(f"nobackfill.vectors.{format}")


def _shown(places: list[Place], path: Path) -> str:
    """Returns the suffix of the files, for an error."""
    return "".join(places[0].path.suffixes[-2:] if len(places) == 1 else [path.suffix]) or "table"
