"""The contents of tables in files: chooses the columns, reads them, and converts them."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from nobackfill.errors import DataError
from nobackfill.vectors.arrow_columns import KEYS, text_bytes, to_numpy, typed_text
from nobackfill.vectors.column_names import ColumnChoice, Columns, choose_by
from nobackfill.vectors.contents import MEANINGFUL, Contents
from nobackfill.vectors.rows import Selection, read_rows
from nobackfill.vectors.shards import (
    Leaf,
    Shard,
    is_list,
    is_number,
    is_numbers,
    is_text,
    leaves_of,
    value_kind,
)

SMALL = 2**26  # bytes of text that are always read


def read_table(
    shards: Sequence[Shard], columns: Columns, *, keep_missing: bool = False
) -> Contents:
    """Reads a table of one or more files.

    Args:
        shards: Files with the same columns.
        columns: Names of columns, where they are known. The label may be missing.
        keep_missing: Whether a missing vector becomes a row of NaN rather than an error.
    """
    first = shards[0]
    names = first.schema.names
    if repeated := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
        raise DataError(f"Two columns have the same name: {repeated[0]}. Rename one of them.")
    leaves = leaves_of(first.schema)
    choice = choose_by(list(leaves) + list(first.constants), columns, lists=_lists(leaves, first))
    _check_vector(choice, leaves)
    _check_alike(shards, choice)
    names = [name for name in leaves if name not in (*choice.vector, *choice.unused)]
    roles = [name for name in (choice.id, choice.label) if name in leaves]
    kept = [name for name in names if name in roles or _is_plain(leaves[name].kind)]
    kept = [name for name in kept if all(name in leaves_of(shard.schema) for shard in shards)]
    selection = Selection(leaves, choice, kept, keep_missing)
    remarks = list(choice.notes)
    try:
        vectors, read = read_rows(shards, selection)
    except pa.ArrowInvalid as error:
        if kept == roles:
            raise
        # Columns that are not required may be unreadable.
        vectors, read = read_rows(shards, replace(selection, kept=roles))
        remarks.append(f"only the id, the vector and the label are read: {error}")
    arrays, left_out = _convert(read, choice, vectors.nbytes, infer=first.is_text)
    if left_out:
        remarks.append(
            f"long texts are not read: {', '.join(left_out)} would need more memory than the "
            f"vectors"
        )
    arrays.setdefault("id", np.arange(len(vectors)))
    is_same = all(shard.notes == first.notes for shard in shards)
    notes = dict(first.notes) if is_same else {}
    return Contents(vectors, arrays, notes, tuple(remarks), has_ids=choice.id is not None)


def _lists(leaves: dict[str, Leaf], shard: Shard) -> frozenset[str]:
    """Returns columns of lists of floats, or else of lists of whole numbers."""
    numbers = {
        name: value_kind(leaf.kind) for name, leaf in leaves.items() if is_numbers(leaf.kind)
    }
    floats = {name for name, kind in numbers.items() if not pa.types.is_integer(kind)}
    return frozenset(floats or numbers) | shard.text_lists


def _check_vector(choice: ColumnChoice, leaves: dict[str, Leaf]) -> None:
    """Raises if the column of vectors contains something else."""
    for name in choice.vector:
        kind = leaves[name].kind
        is_vector = is_number(kind) if choice.is_wide else is_numbers(kind) or is_text(kind)
        if not is_vector and not (choice.is_wide and is_text(kind)):
            raise DataError(
                f"The column `{name}` contains {kind}, not a list of floats in each row. Write "
                f"each vector as a list of float16 or float32."
            )


def _check_alike(shards: Sequence[Shard], choice: ColumnChoice) -> None:
    """Raises if a file lacks a column that another one has."""
    for shard in shards:
        names = {*leaves_of(shard.schema), *shard.constants}
        for name in (choice.id, choice.label, *choice.vector):
            if name is not None and name not in names:
                raise DataError(
                    f"{shard.name} has no column `{name}`, but {shards[0].name} has. Pass files "
                    f"with the same columns."
                )


def _is_plain(kind: pa.DataType) -> bool:
    """Whether a column may be kept: one value per row that is not just bytes."""
    kinds = pa.types
    is_bytes = kinds.is_binary(kind) or kinds.is_large_binary(kind)
    return not (is_list(kind) or kinds.is_map(kind) or is_bytes or kinds.is_null(kind))


def _convert(
    read: dict[str, pa.ChunkedArray], choice: ColumnChoice, room: int, *, infer: bool
) -> tuple[dict[str, NDArray[np.generic]], list[str]]:
    """Returns the columns as arrays, and the names of those left out as they are too long.

    The column of labels is also kept under its own name.
    """
    arrays, left_out = {}, []
    for name, column in read.items():
        role = "id" if name == choice.id else "label" if name == choice.label else name
        if infer:
            column = typed_text(column, role)
        size = text_bytes(column)
        is_other = role == name and name not in (*KEYS, *MEANINGFUL)
        if is_other and size > max(SMALL, room):
            left_out.append(name)
            continue
        try:
            arrays[role] = to_numpy(column, role)
        except DataError as error:
            if role != name:
                raise DataError(str(error).replace(f"`{role}`", f"`{name}`", 1)) from None
            if name in (*KEYS, *MEANINGFUL):
                raise
            continue
        if role == "label" and name != role:
            arrays[name] = arrays[role]
    return arrays, left_out
