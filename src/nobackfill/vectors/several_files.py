"""Reads files of vectors of the same items by several models."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from nobackfill.core.suggest import suggest
from nobackfill.errors import ConfigError, DataError
from nobackfill.vectors.column_names import ANY, Columns
from nobackfill.vectors.ids import is_in
from nobackfill.vectors.load import Loaded, read_file
from nobackfill.vectors.vectors import Vectors

Read = TypeVar("Read")


class Files(NamedTuple):
    """Vectors of several files, with matching ids."""

    vectors: dict[str, Vectors]
    remarks: tuple[str, ...]  # sentences on what was guessed, left out or assumed
    without_ids: frozenset[str]  # files whose rows are numbered


def read_files(
    paths: Mapping[str, Path | None], columns: Columns = ANY, *, drop_invalid: bool = False
) -> Files:
    """Reads several files. What is left out of one file is left out of all.

    Rows without ids have their numbers as ids. If the ids of another file are not numbers, rows are
    matched by position, which is a remark.

    Args:
        paths: Path of each file by the name of its option; None for files that were not passed.
        columns: Names of columns, where they are known. The label may be missing in some files.
        drop_invalid: Whether to leave out vectors without a direction.
    """
    present = {name: path for name, path in paths.items() if path is not None}
    read = read_each(
        present,
        columns,
        lambda name, columns: read_file(present[name], columns, drop_invalid=drop_invalid),
    )
    remarks = [f"{present[name]}: {text}" for name, file in read.items() for text in file.remarks]
    bare = frozenset(name for name, file in read.items() if not file.has_ids)
    named = [file for name, file in read.items() if name not in bare]
    if bare and any(file.vectors.ids.dtype.kind == "U" for file in named):
        vectors, assumed = _by_position(read)
        remarks += assumed
    else:
        vectors = {name: file.vectors for name, file in read.items()}
    if any(file.dropped for file in read.values()):
        vectors = _leave_out(read, vectors)
    return Files(vectors, tuple(dict.fromkeys(remarks)), bare)


def read_each(
    sources: Mapping[str, Any], columns: Columns, read: Callable[[str, Columns], Read]
) -> dict[str, Read]:
    """Reads each source by the named columns, or by our own names if it lacks them.

    Old vectors have the columns that a user names, and new ones that nobackfill wrote `id` and
    `vector`. At least one source must have the named columns.
    """
    done: dict[str, Read] = {}
    lacking: dict[str, ConfigError] = {}
    for name in sources:
        try:
            done[name] = read(name, columns)
        except ConfigError as refusal:
            lacking[name] = refusal
    for name, reason in lacking.items():
        if not done or (columns.id is None and columns.vector is None):
            raise reason
        try:
            done[name] = read(name, Columns("id", "vector", columns.label))
        except ConfigError:
            raise reason from None
    return {name: done[name] for name in sources}


def check_labelled(columns: Columns, files: Mapping[str, Vectors]) -> None:
    """Raises if no file has the column of labels that was passed."""
    if columns.label is None or any(file.labels is not None for file in files.values()):
        return
    names = dict.fromkeys(name for file in files.values() for name in file.columns)
    raise ConfigError(
        f"no file has a column `{columns.label}` to group items by. "
        + (suggest(columns.label, names) if names else "Add it to either file.")
    )


def _by_position(read: Mapping[str, Loaded]) -> tuple[dict[str, Vectors], list[str]]:
    """Gives rows without ids those of the other file."""
    from nobackfill.vectors.arrays import Side
    from nobackfill.vectors.sides import match_sides

    if any(file.dropped for file in read.values()):
        raise DataError(
            "Rows without ids are matched by position, so none can be left out. Write ids into "
            "all files to use --drop-invalid."
        )
    sides = [Side(name, file.vectors, file.has_ids) for name, file in read.items()]
    matched, assumed = match_sides(sides)
    return {side.name: side.vectors for side in matched}, assumed


def _leave_out(read: Mapping[str, Loaded], vectors: Mapping[str, Vectors]) -> dict[str, Vectors]:
    """Leaves items out of all files that were left out of one."""
    dropped = np.array([id for file in read.values() for id in file.dropped])
    kept = {}
    for name, file in vectors.items():
        is_dropped = is_in(file.ids, dropped)
        kept[name] = file.select(~is_dropped) if is_dropped.any() else file
    return kept
