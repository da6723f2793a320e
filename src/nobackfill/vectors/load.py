"""Reads files of vectors: the only way from a path to `Vectors`."""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from nobackfill.core.steady import read_steadily
from nobackfill.errors import ConfigError, DataError, NobackfillError
from nobackfill.vectors.column_names import ANY, Columns
from nobackfill.vectors.contents import COMPATIBLE_DIM, Contents
from nobackfill.vectors.formats import read_contents
from nobackfill.vectors.matrix import are_valid, as_matrix
from nobackfill.vectors.paths import files_of
from nobackfill.vectors.records import declared_space, sources
from nobackfill.vectors.space import Space, read_record, with_dim
from nobackfill.vectors.vectors import Vectors

SHOWN = 5  # ids in a note


@dataclass(frozen=True, eq=False)
class Loaded:
    """Vectors of a file, and remarks for the user.

    Attributes:
        vectors: Vectors; their ids are row numbers if `has_ids` is false.
        remarks: Sentences on what was guessed or left out.
        has_ids: Whether the ids are in the file.
        dropped: Ids of the rows that were left out, as they had no direction.
    """

    vectors: Vectors
    remarks: tuple[str, ...]
    has_ids: bool
    dropped: tuple[str | int, ...] = ()


def load_vectors(
    path: Path | str,
    *,
    id: str | None = None,
    vector: str | None = None,
    label: str | None = None,
    drop_invalid: bool = False,
) -> Vectors:
    """Reads a file of vectors, written by `Vectors.save` or another program.

    The path names a file, a folder of shards, or several files by a pattern such as
    `shards/*.parquet`. See docs/files.md for the formats. Columns are found by their usual names.

    The space is read from the file's metadata or else from a record beside it, such as
    `old.npy.space.json`. Compatibility that was measured later is in that record only. Vectors in
    .npy and .safetensors are memory-mapped: read once to check them, never copied. Changing the
    tensor does not change the file.

    Args:
        path: File, folder or pattern.
        id: Name of the column of ids, if it is not found.
        vector: Name of the column of vectors, or what the names of its dimensions start with.
        label: Name of the column of labels.
        drop_invalid: Whether to leave out vectors that are missing, zero, infinite, NaN or out of
            range, and to warn about them, instead of raising an error.
    """
    columns = Columns(id, vector, label)
    loaded = read_file(path, columns, drop_invalid=drop_invalid)
    if label is not None and loaded.vectors.labels is None:
        raise ConfigError(f"{path}: {_no_label(label, loaded.vectors)}")
    if loaded.dropped:
        warnings.warn(f"{path}: {loaded.remarks[-1]}", stacklevel=2)
    return loaded.vectors


def read_file(path: Path | str, columns: Columns = ANY, *, drop_invalid: bool = False) -> Loaded:
    """Reads a file of vectors. A column of labels that is passed may be missing.

    Args:
        path: File, folder or pattern.
        columns: Names of columns, where they are known.
        drop_invalid: Whether to leave out vectors without a direction.
    """
    path = Path(path)

    def read() -> Loaded:
        """Reads the file and its records."""
        contents = read_contents(path, columns, keep_missing=drop_invalid)
        dropped: tuple[str | int, ...] = ()
        if drop_invalid:
            contents, dropped = _without_invalid(contents)
        vectors, remarks = _from_contents(contents, path)
        return Loaded(vectors, (*contents.remarks, *remarks), contents.has_ids, dropped)

    try:
        return read_steadily(read, lambda: _files_read(path))
    except (DataError, ConfigError) as error:
        raise type(error)(f"{path}: {error}") from error


def _files_read(path: Path) -> list[Path]:
    """Returns the files and records that are read for a path."""
    try:
        shards = [] if path.is_file() else [place.path for place in files_of(path)]
    except (OSError, ValueError, NobackfillError):
        shards = []  # an error that is raised by reading
    return [*sources(path), *shards]


def _without_invalid(contents: Contents) -> tuple[Contents, tuple[str | int, ...]]:
    """Returns contents without vectors that have no direction, and the ids of those."""
    matrix = as_matrix(contents.vector)
    valid = are_valid(matrix)
    if valid.all():
        return contents, ()
    ids = contents.columns["id"]
    if len(ids) != len(valid):
        return contents, ()  # an error that is raised later
    dropped = tuple(ids[~valid].tolist())
    if not valid.any():
        raise DataError(f"None of {len(ids):,} vectors has a direction. Embed the items again.")
    remark = (
        f"{len(dropped):,} of {len(ids):,} vectors are left out, as they are missing, zero, "
        f"infinite, NaN or out of range: {shown_ids(dropped)}"
    )
    columns = {
        name: values[valid] if len(values) == len(valid) else values
        for name, values in contents.columns.items()
    }
    kept = matrix[torch.from_numpy(np.flatnonzero(valid))]
    remarks = (*contents.remarks, remark)
    return replace(contents, vector=kept, columns=columns, remarks=remarks), dropped


def shown_ids(ids: tuple[str | int, ...]) -> str:
    """Returns the first ids for a sentence.

    Example:
        >>> shown_ids(("a", "b")), shown_ids(tuple(range(9)))
        ("'a', 'b'", '0, 1, 2, 3, 4 …')
    """
    return ", ".join(map(repr, ids[:SHOWN])) + (" …" if len(ids) > SHOWN else "")


def _no_label(label: str, vectors: Vectors) -> str:
    """Returns the message for a column of labels that is not in the file."""
    from nobackfill.core.suggest import suggest

    hint = suggest(label, vectors.columns) if vectors.columns else "It has only ids and vectors."
    return f"There is no column `{label}` for the labels. {hint}"


def _from_contents(contents: Contents, path: Path) -> tuple[Vectors, tuple[str, ...]]:
    """Checks the contents of the file at `path`; returns remarks on its records, too."""
    columns, notes = dict(contents.columns), contents.notes
    dim = contents.vector.shape[1] if contents.vector.ndim == 2 else None
    space, remarks = _space_of(path, notes, dim)
    compatible_dim = notes.get(COMPATIBLE_DIM)
    if compatible_dim is not None and not (compatible_dim.isdecimal() and len(compatible_dim) < 9):
        raise DataError(
            f"`{COMPATIBLE_DIM}` must be a number, not {compatible_dim[:20]!r}. Write the file "
            f"again."
        )
    vectors = Vectors(
        columns.pop("id"),
        contents.vector,
        columns.pop("label", None),
        columns=columns,
        space=space,
        compatible_dim=None if compatible_dim is None else int(compatible_dim),
    )
    return vectors, remarks


def _space_of(
    path: Path, notes: Mapping[str, str], dim: int | None
) -> tuple[Space | None, tuple[str, ...]]:
    """Returns the space of a file or a folder, whose record may also be within it."""
    within = path / "space.json"
    if path.is_dir() and within.is_file():
        return with_dim(read_record(within), dim), ()
    return declared_space(path, notes, dim)
