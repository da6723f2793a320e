"""Space records of runs, heads and files of vectors: where they are stored, and reading them."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from nobackfill.core.steady import read_steadily
from nobackfill.errors import DataError
from nobackfill.vectors.beside import (
    KINDS,
    files_named_like,
    path_beside,
    path_by_stem,
    read_beside,
    write_beside,
)
from nobackfill.vectors.contents import SPACE
from nobackfill.vectors.formats import read_notes
from nobackfill.vectors.space import CompatibleWith, Space, read_record, with_dim, write_record

VECTORS = ("validation_query.parquet", "validation.parquet")  # files of a run, queries first
RECORD = "space.json"  # end of the name of every record


def record_of(path: Path) -> Path:
    """Returns the path of the space record of a run, a head, a file of vectors or a record.

    The record may not exist yet.
    """
    file = _file_of(path)
    if file.is_dir():
        return path / RECORD
    return file if file.name.endswith(RECORD) else path_beside(file)


def _file_of(path: Path) -> Path:
    """Returns the file of vectors of a run, those of queries first, or of a missing record.

    Other paths are unchanged.
    """
    if path.name.endswith(f".{RECORD}") and not path.exists():
        file = path.with_name(path.name.removesuffix(f".{RECORD}"))
        alike = [file] if file.is_file() else files_named_like(path.with_name(f"{file.name}.x"))
        return alike[0] if len(alike) == 1 else path
    if not path.is_dir() or (path / RECORD).exists():
        return path
    return next((path / name for name in VECTORS if (path / name).exists()), path)


def space_of(path: Path) -> Space:
    """Reads the space of a run, a head, a file of vectors or a space record."""
    space = _space_of(path)
    if space is None:
        raise DataError(
            f"Unknown space of {path}: there is no space.json in or beside it. Pass a "
            f"run, a head, or a file of vectors that nobackfill wrote."
        )
    return space


def _space_of(path: Path) -> Space | None:
    """Reads a space, or returns None if nothing declares it."""
    path = _file_of(path)
    if path.name.endswith(RECORD):
        return read_record(path) if path.exists() else None
    if (path / RECORD).exists():
        return read_record(path / RECORD)
    space = read_space(path)
    if (space is None or space.dim is None) and path.is_file():
        from nobackfill.vectors.load import load_vectors

        return load_vectors(path).space  # adds the dimensions
    return space


def read_space(path: Path | str) -> Space | None:
    """Reads the space of a file of vectors, or a folder of them, without reading the vectors.

    None if neither the file nor a record beside it declares one.
    """
    path = Path(path)
    return read_steadily(lambda: declared_space(path, read_notes(path))[0], lambda: sources(path))


def declared_space(
    path: Path, notes: Mapping[str, str], dim: int | None = None
) -> tuple[Space | None, tuple[str, ...]]:
    """Returns the space of a file, and remarks on records that are of other contents.

    The file itself comes first; records beside it add later measurements. Two records of different
    models are an error.

    Args:
        path: File of vectors, or a folder of them.
        notes: Texts in the file itself.
        dim: Number of dimensions of the vectors, for a record without `dim`.
    """
    own = Space.from_json(notes[SPACE], where=f"the record in {path}") if SPACE in notes else None
    records, others = read_beside(path, verify=own is None)
    space, first = own, path
    for record in records:
        beside = with_dim(_space_from(record.facts, record.path), dim)
        if space is None:
            space, first = beside, record.path
        elif beside.fingerprint == space.fingerprint:
            space = _measured_too(space, beside)
        elif own is None or not record.is_bound:  # a bound one is of contents that were replaced
            raise DataError(
                f"{first} and {record.path} declare different models. Remove the record that is "
                f"wrong."
            )
    remarks = [
        f"{record.name} is not read: it is of other contents than those of {path.name}"
        for record in others
    ]
    return space, tuple(remarks)


def sources(path: Path) -> list[Path]:
    """Returns the paths of a file and of the records that it may have."""
    beside = [place(path, kind) for kind in KINDS for place in (path_beside, path_by_stem)]
    return [path, *beside] if path.suffix else [path, *beside[::2]]


def declare_space(path: Path, space: Space) -> Path:
    """Writes the space of a run, a head or a file of vectors; returns the path of the record."""
    file = _file_of(path)
    if file.is_file() and not file.name.endswith(RECORD):
        return write_beside(file, "space", space.to_record())
    record = record_of(path)
    write_record(record, space)
    return record


def measured_in(run: Path, fingerprint: str) -> tuple[CompatibleWith, ...]:
    """Returns the measured compatibility of one of the spaces of a run's model.

    Args:
        run: Run folder.
        fingerprint: Fingerprint of the space; queries may have another one than the gallery.
    """
    spaces = (read_space(run / name) for name in VECTORS)
    own = (space for space in spaces if space is not None and space.fingerprint == fingerprint)
    return next((space.compatible_with for space in own), ())


def _space_from(facts: dict[str, Any], record: Path) -> Space:
    return Space.from_record(facts, where=str(record))


def _measured_too(space: Space, beside: Space) -> Space:
    """Returns a space with the measurements of a later record in place of those in the file."""
    return replace(
        space,
        compatible_with=beside.compatible_with,
        not_compatible_with=beside.not_compatible_with,
    )
