"""The format `.parquet`: vectors and columns as a table, written and read in batches of rows."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from torch import Tensor

from nobackfill.errors import DataError
from nobackfill.vectors.columns import as_column
from nobackfill.vectors.contents import NOTES, Contents, require_id_and_vector

ROWS = 8192  # per batch
THREADS = 8  # for reading, at most
BUFFER = 2**20  # bytes read at a time; otherwise Arrow fetches whole columns ahead


def read(path: Path) -> Contents:
    """Reads the columns, and the vectors in batches into one array."""
    with _open(path) as file:
        names = file.schema_arrow.names
        require_id_and_vector(names)
        if len(set(names)) < len(names):
            raise ValueError("two columns have the same name")
        table = file.read(columns=[name for name in names if name != "vector"])
        columns = {name: to_numpy(table.column(name), name) for name in table.column_names}
        vector = _read_vectors(file, path, columns["id"])
        metadata = file.schema_arrow.metadata or {}
    prefix = NOTES.encode()
    notes = {k.decode(): v.decode() for k, v in metadata.items() if k.startswith(prefix)}
    return Contents(vector, columns, notes)


def _open(path: Path, metadata: pq.FileMetaData | None = None) -> pq.ParquetFile:
    """Opens a file for reading in batches; `metadata` saves reading it again."""
    return pq.ParquetFile(path, metadata=metadata, pre_buffer=False, buffer_size=BUFFER)


def _read_vectors(file: pq.ParquetFile, path: Path, ids: NDArray[Any]) -> NDArray[Any]:
    """Reads the vectors into one array, several row groups in parallel."""
    kind, kinds = file.schema_arrow.field("vector").type, pa.types
    is_list = kinds.is_fixed_size_list(kind) or kinds.is_list(kind) or kinds.is_large_list(kind)
    if not is_list or not kinds.is_floating(kind.value_type):
        raise DataError(
            f"The column `vector` contains {kind}, not a list of floats in each row. Write each "
            f"vector as a list of float16 or float32."
        )
    metadata = file.metadata
    dim = _length_of_first(file)
    vectors = np.empty((metadata.num_rows, dim), kind.value_type.to_pandas_dtype())
    sizes = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
    starts = np.cumsum([0, *sizes]).tolist()

    def read_group(group: int) -> None:
        """Reads a row group in batches: it may be as long as the file."""
        start = starts[group]
        with _open(path, metadata) as own:
            for batch in own.iter_batches(
                ROWS, row_groups=[group], columns=["vector"], use_threads=False
            ):
                lists = batch.column("vector")
                end = start + len(lists)
                _check_lengths(lists, dim, ids[start:end])
                flat = lists.flatten().to_numpy(zero_copy_only=False)
                vectors[start:end] = flat.reshape(len(lists), dim)
                start = end

    with ThreadPoolExecutor(min(THREADS, os.cpu_count() or 1)) as pool:
        for _ in pool.map(read_group, range(len(sizes))):
            pass  # raises the exception of the first group that failed
    return vectors


def _length_of_first(file: pq.ParquetFile) -> int:
    """Returns the number of values in the first row, 0 if it is missing."""
    for batch in file.iter_batches(1, columns=["vector"]):
        first = batch.column("vector")[0]
        return len(first) if first.is_valid else 0
    return 0


def _check_lengths(lists: pa.Array, dim: int, ids: NDArray[Any]) -> None:
    """Raises at the first row that is not a list of `dim` values."""
    lengths = lists.value_lengths().fill_null(-1).to_numpy(zero_copy_only=False)
    if (wrong := np.flatnonzero((lengths != dim) | (lengths < 0))).size:
        row, length = wrong[0], lengths[wrong[0]]
        raise DataError(
            f"The vector of id {ids[row].item()!r} "
            f"{'is missing' if length < 0 else f'has {length} dimensions'}, the first one has "
            f"{dim}. Embed these items again with one model, or drop them."
        )


def to_numpy(column: pa.ChunkedArray, name: str) -> NDArray[Any]:
    """Returns a column as an array. Missing text becomes "", a missing float NaN.

    Missing ids, labels, whole numbers and booleans are errors.
    """
    kinds = pa.types
    if kinds.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    is_view = getattr(kinds, "is_string_view", lambda _: False)  # since pyarrow 16
    text_kinds = (kinds.is_string, kinds.is_large_string, is_view)
    is_text = any(is_kind(column.type) for is_kind in text_kinds)
    if is_text and name not in ("id", "label"):
        column = column.cast(pa.large_string()).fill_null("")
    if column.null_count and not kinds.is_floating(column.type):
        raise DataError(
            f"Column `{name}` must have a value in each row, but {column.null_count} of "
            f"{len(column)} are missing, the first in row {column.is_null().index(True).as_py()}. "
            f"Fill them in, or drop {'these rows' if name in ('id', 'label') else 'the column'}."
        )
    return as_column(column.to_numpy(), name)


def write(path: Path, contents: Contents) -> None:
    """Writes one row group per batch."""
    schema = _to_batch(contents, 0).schema.with_metadata(contents.notes)
    with pq.ParquetWriter(
        path, schema, compression="zstd", use_dictionary=list(contents.columns)
    ) as writer:
        for start in range(0, len(contents.vector), ROWS):
            writer.write_batch(_to_batch(contents, start))


def _to_batch(contents: Contents, start: int) -> pa.RecordBatch:
    """Returns the batch of rows that begins at `start`."""
    assert isinstance(contents.vector, Tensor)
    vector = contents.vector[start : start + ROWS]
    lists = pa.FixedSizeListArray.from_arrays(pa.array(vector.flatten().numpy()), vector.shape[1])
    columns = {
        name: pa.array(array[start : start + ROWS]) for name, array in contents.columns.items()
    }
    return pa.RecordBatch.from_pydict({"id": columns.pop("id"), "vector": lists, **columns})
