"""Reads the rows of tables in files: vectors into one array, other columns as Arrow's."""

import os
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from nobackfill.errors import DataError
from nobackfill.vectors import shards as table
from nobackfill.vectors.column_names import ColumnChoice
from nobackfill.vectors.shards import Leaf, Part, Shard, pick

THREADS = 8  # for reading, at most
GROWTH = 1.25  # of the array, if the number of rows is unknown

Kept = dict[str, list[pa.Array]]  # other columns, batch by batch


@dataclass(frozen=True)
class Selection:
    """Columns to read from a table.

    Attributes:
        leaves: All columns by name.
        choice: Columns of the id, the vector and the label.
        kept: Names of the columns to read besides the vectors.
        keep_missing: Whether a missing vector becomes a row of NaN rather than an error.
    """

    leaves: Mapping[str, Leaf]
    choice: ColumnChoice
    kept: Sequence[str]
    keep_missing: bool = False

    @property
    def stored(self) -> list[str]:
        """Names of the columns as they are stored, where nested ones are within others."""
        names = [*self.kept, *self.choice.vector]
        return list(dict.fromkeys(self.leaves[name].path[0] for name in names))


def read_rows(
    shards: Sequence[Shard], selection: Selection
) -> tuple[NDArray[Any], dict[str, pa.ChunkedArray]]:
    """Returns the vectors as a matrix, and the kept columns.

    Parts whose number of rows is known are read by several threads.
    """
    parts = [
        (shard, part)
        for shard in shards
        for part in shard.parts(selection.choice, selection.stored)
    ]
    dtype = _precision(shards, selection)
    if all(part.rows is not None for _, part in parts):
        vectors, kept = _read_parallel(parts, selection, dtype)
    else:
        vectors, kept = _read_in_turn(parts, selection, dtype)
    return vectors, {name: _chunked(arrays) for name, arrays in kept.items()}


def _read_parallel(
    parts: Sequence[tuple[Shard, Part]], selection: Selection, dtype: Any
) -> tuple[NDArray[Any], Kept]:
    """Reads parts of known length into their places in one array."""
    starts = list(accumulate((part.rows or 0 for _, part in parts), initial=0))
    dim = _first_dim(parts, selection)
    vectors = np.empty((starts[-1], dim), dtype)

    def read_part(number: int) -> Kept:
        """Reads one part in batches: it may be as long as the file."""
        shard, part = parts[number]
        place, kept = starts[number], _nothing(selection)
        for batch in part.batches():
            block = _vectors_of(batch, selection, place, dim)
            vectors[place : place + len(block)] = block
            _keep(batch, selection, shard, kept)
            place += batch.num_rows
        return kept

    everything = _nothing(selection)
    with ThreadPoolExecutor(min(THREADS, os.cpu_count() or 1)) as pool:
        for kept in pool.map(read_part, range(len(parts))):  # raises what the first part raised
            for name, arrays in kept.items():
                everything.setdefault(name, []).extend(arrays)
    return vectors, everything


def _read_in_turn(
    parts: Sequence[tuple[Shard, Part]], selection: Selection, dtype: Any
) -> tuple[NDArray[Any], Kept]:
    """Reads parts of unknown length into an array that grows."""
    kept, matrix, rows, dim = _nothing(selection), Growing(dtype), 0, 0
    pending: deque[Future[NDArray[Any]]] = deque()
    with ThreadPoolExecutor(threads := min(THREADS, os.cpu_count() or 1)) as pool:
        for shard, part in parts:
            for batch in part.batches():
                if batch.num_rows == 0:
                    continue
                dim = dim or _dim_of(batch, selection)
                # Convert some batches at once, and add them in order.
                pending.append(pool.submit(_vectors_of, batch, selection, rows, dim))
                if len(pending) > threads:
                    matrix.add(pending.popleft().result())
                _keep(batch, selection, shard, kept)
                rows += batch.num_rows
        while pending:
            matrix.add(pending.popleft().result())
    return matrix.finished(dim), kept


class Growing:
    """A matrix of an unknown number of rows."""

    def __init__(self, dtype: Any):
        self.values, self.filled = np.empty(0, dtype), 0

    def add(self, block: NDArray[Any]) -> None:
        """Appends rows."""
        end = self.filled + block.size
        if end > len(self.values):
            self.values.resize(int(GROWTH * end), refcheck=False)
        self.values[self.filled : end] = block.ravel()
        self.filled = end

    def finished(self, dim: int) -> NDArray[Any]:
        """Returns all rows."""
        self.values.resize(self.filled, refcheck=False)
        return self.values.reshape(-1 if dim else 0, dim)


def _vectors_of(batch: pa.RecordBatch, selection: Selection, start: int, dim: int) -> NDArray[Any]:
    """Returns the vectors of a batch as a matrix."""
    choice = selection.choice
    columns = [pick(batch, selection.leaves[name]) for name in choice.vector]
    if choice.is_wide:
        return np.stack([_floats(column) for column in columns], axis=1)
    lists = _lists_in(columns[0], choice.vector[0])
    _check_lengths(lists, dim, batch, selection, start)
    if lists.null_count:
        return _filled(lists, dim)
    return _floats(lists.flatten()).reshape(len(lists), dim)


def _floats(values: pa.Array) -> NDArray[Any]:
    """Returns numbers as floats; missing ones are NaN."""
    if pa.types.is_decimal(values.type):
        values = values.cast(pa.float64())
    elif not pa.types.is_floating(values.type):
        values = values.cast(pa.float32(), safe=False)
    return np.asarray(values.to_numpy(zero_copy_only=False))


def _filled(lists: pa.Array, dim: int) -> NDArray[Any]:
    """Returns lists as a matrix in which a missing one is NaN."""
    rows = np.full((len(lists), dim), np.nan)
    present = lists.is_valid().to_numpy(zero_copy_only=False)
    rows[present] = _floats(lists.drop_null().flatten()).reshape(-1, dim)
    return rows


def _check_lengths(
    lists: pa.Array, dim: int, batch: pa.RecordBatch, selection: Selection, start: int
) -> None:
    """Raises at the first row that is not a list of `dim` values."""
    lengths = lists.value_lengths().fill_null(-1).to_numpy(zero_copy_only=False)
    is_wrong = (lengths != dim) & ~((lengths < 0) & selection.keep_missing)
    if (wrong := np.flatnonzero(is_wrong)).size:
        row, length = int(wrong[0]), lengths[wrong[0]]
        id = selection.choice.id
        item = start + row if id is None else pick(batch, selection.leaves[id])[row].as_py()
        raise DataError(
            f"The vector of id {item!r} "
            f"{'is missing' if length < 0 else f'has {length} dimensions'}, the first one has "
            f"{dim}. Embed these items again with one model, or drop them."
        )


def _keep(batch: pa.RecordBatch, selection: Selection, shard: Shard, kept: Kept) -> None:
    """Adds the other columns of a batch."""
    for name in selection.kept:
        kept[name].append(pick(batch, selection.leaves[name]))
    for name, value in shard.constants.items():
        kept.setdefault(name, []).append(pa.repeat(pa.scalar(value), batch.num_rows))


def _nothing(selection: Selection) -> Kept:
    """Returns the kept columns before any batch."""
    return {name: [] for name in selection.kept}


def _chunked(arrays: Sequence[pa.Array]) -> pa.ChunkedArray:
    """Returns the parts of a column as one, also if files differ in the kind of its values."""
    kinds = {array.type for array in arrays}
    if len(kinds) <= 1:
        return pa.chunked_array(arrays, None if arrays else pa.string())
    schemas = [pa.schema([("column", kind)]) for kind in kinds]
    kind = pa.unify_schemas(schemas, promote_options="permissive").field(0).type
    return pa.chunked_array([array.cast(kind) for array in arrays], kind)


def _precision(shards: Sequence[Shard], selection: Selection) -> Any:
    """Returns the precision of the vectors in the file; float32 for text and whole numbers."""
    kinds = []
    for shard in shards:
        leaves = table.leaves_of(shard.schema)
        for kind in {leaves[name].kind for name in selection.choice.vector}:
            number = table.value_kind(kind) if table.is_list(kind) else kind
            is_float = pa.types.is_floating(number) and not shard.is_text
            kinds.append(number.to_pandas_dtype() if is_float else np.float32)
            if pa.types.is_decimal(number):
                kinds[-1] = np.float64
    return np.result_type(*kinds)


def _first_dim(parts: Sequence[tuple[Shard, Part]], selection: Selection) -> int:
    """Returns the number of dimensions of the first vector, from its type if that contains it."""
    kind = selection.leaves[selection.choice.vector[0]].kind
    if pa.types.is_fixed_size_list(kind) and not selection.choice.is_wide:
        return int(kind.list_size)
    for _, part in parts:
        for batch in part.batches():
            if batch.num_rows:
                return _dim_of(batch, selection)
    return 0


def _dim_of(batch: pa.RecordBatch, selection: Selection) -> int:
    """Returns the number of dimensions of the first vector of a batch."""
    if selection.choice.is_wide:
        return len(selection.choice.vector)
    name = selection.choice.vector[0]
    for row in range(batch.num_rows if selection.keep_missing else 1):
        values = pick(batch.slice(row, 1), selection.leaves[name])
        lists = _lists_in(values, name)
        if lists[0].is_valid:
            return len(lists[0])
    return 0


def _lists_in(values: pa.Array, name: str) -> pa.Array:
    """Returns a column of lists; texts such as "[0.1, 0.2]" are parsed."""
    if not table.is_text(values.type):
        return values
    from nobackfill.vectors.vector_text import parse_lists

    return parse_lists(values, name)
