"""Vectors and columns as a table: `.parquet`, written and read a batch of rows at a time."""

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

ROWS = 8192  # in one batch
THREADS = 8  # that read, at most
BUFFER = 2**20  # bytes read at a time; otherwise Arrow fetches whole columns ahead


def read(path: Path) -> Contents:
    """Reads the columns, and the vectors batch by batch into one array."""
    with open_parquet(path) as file:
        names = file.schema_arrow.names
        require_id_and_vector(names)
        if len(set(names)) < len(names):
            raise ValueError("two columns have the same name")
        table = file.read(columns=[name for name in names if name != "vector"])
        columns = {name: to_numpy(table.column(name), name) for name in table.column_names}
        vector = read_vectors(file, path, columns["id"])
        notes = read_notes(file.schema_arrow.metadata or {})
    return Contents(vector, columns, notes)


def open_parquet(path: Path, metadata: pq.FileMetaData | None = None) -> pq.ParquetFile:
    """Opens a file to be read little by little; `metadata` is read only if not told."""
    return pq.ParquetFile(path, metadata=metadata, pre_buffer=False, buffer_size=BUFFER)


def read_notes(metadata: dict[bytes, bytes]) -> dict[str, str]:
    """Returns our own entries of a schema's metadata."""
    ours = NOTES.encode()
    return {k.decode(): v.decode() for k, v in metadata.items() if k.startswith(ours)}


def read_vectors(file: pq.ParquetFile, path: Path, ids: NDArray[Any]) -> NDArray[Any]:
    """Reads the vectors into one array, several row groups at the same time."""
    kind = file.schema_arrow.field("vector").type
    if not is_list(kind) or not pa.types.is_floating(kind.value_type):
        raise DataError(
            f"the column `vector` wants a list of floats in each row, but holds {kind}. Write each "
            f"vector as a list of float16 or float32."
        )
    metadata = file.metadata
    dim = length_of_first(file)
    vectors = np.empty((metadata.num_rows, dim), kind.value_type.to_pandas_dtype())
    sizes = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
    starts = np.cumsum([0, *sizes]).tolist()

    def read_group(group: int) -> None:
        """One batch after the other: a row group may be as long as the file."""
        start = starts[group]
        with open_parquet(path, metadata) as own:
            for batch in own.iter_batches(
                ROWS, row_groups=[group], columns=["vector"], use_threads=False
            ):
                lists = batch.column("vector")
                end = start + len(lists)
                check_lengths(lists, dim, ids[start:end])
                flat = lists.flatten().to_numpy(zero_copy_only=False)
                vectors[start:end] = flat.reshape(len(lists), dim)
                start = end

    with ThreadPoolExecutor(min(THREADS, os.cpu_count() or 1)) as pool:
        for _ in pool.map(read_group, range(len(sizes))):
            pass  # raises what the first group that cannot be read has raised
    return vectors


def is_list(kind: pa.DataType) -> bool:
    """Returns whether each row of a column holds a list, of fixed length or not."""
    kinds = pa.types
    return bool(kinds.is_fixed_size_list(kind) or kinds.is_list(kind) or kinds.is_large_list(kind))


def length_of_first(file: pq.ParquetFile) -> int:
    """Returns how many values the first row holds, 0 if it is missing."""
    for batch in file.iter_batches(1, columns=["vector"]):
        first = batch.column("vector")[0]
        return len(first) if first.is_valid else 0
    return 0


def check_lengths(lists: pa.Array, dim: int, ids: NDArray[Any]) -> None:
    """Refuses rows that hold no list of `dim` values."""
    lengths = lists.value_lengths().fill_null(-1).to_numpy(zero_copy_only=False)
    if (wrong := np.flatnonzero((lengths != dim) | (lengths < 0))).size:
        row, length = wrong[0], lengths[wrong[0]]
        raise DataError(
            f"wanted in each row a vector as long as the first one ({dim}), but that of id "
            f"{ids[row].item()!r} {'is missing' if length < 0 else f'has {length}'}. Embed these "
            f"items again with one model, or drop them."
        )


def to_numpy(column: pa.ChunkedArray, name: str) -> NDArray[Any]:
    """Returns a column as an array. A missing text is the empty one, a missing float NaN.

    Missing ids, labels, whole numbers and booleans are errors: nothing could stand for them.
    """
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if is_text(column.type) and name not in ("id", "label"):
        column = column.cast(pa.large_string()).fill_null("")
    if column.null_count and not pa.types.is_floating(column.type):
        raise DataError(
            f"column `{name}` wants a value in each row, but {column.null_count} of {len(column)} "
            f"are missing, the first in row {column.is_null().index(True).as_py()}. Fill them in, "
            f"or drop {'these rows' if name in ('id', 'label') else 'the column'}."
        )
    return as_column(column.to_numpy(), name)


def is_text(kind: pa.DataType) -> bool:
    """Returns whether a column holds text."""
    kinds = pa.types
    is_view = getattr(kinds, "is_string_view", lambda _: False)  # since pyarrow 16
    return bool(kinds.is_string(kind) or kinds.is_large_string(kind) or is_view(kind))


def write(path: Path, contents: Contents) -> None:
    """Writes one row group per batch."""
    assert isinstance(contents.vector, Tensor)
    schema = to_batch(contents, 0).schema.with_metadata(contents.notes)
    with pq.ParquetWriter(
        path, schema, compression="zstd", use_dictionary=list(contents.columns)
    ) as writer:
        for start in range(0, len(contents.vector), ROWS):
            writer.write_batch(to_batch(contents, start))


def to_batch(contents: Contents, start: int) -> pa.RecordBatch:
    """Returns the rows from `start` on, as many as go into one batch."""
    assert isinstance(contents.vector, Tensor)
    vector = contents.vector[start : start + ROWS]
    lists = pa.FixedSizeListArray.from_arrays(pa.array(vector.flatten().numpy()), vector.shape[1])
    columns = {
        name: pa.array(array[start : start + ROWS]) for name, array in contents.columns.items()
    }
    return pa.RecordBatch.from_pydict({"id": columns.pop("id"), "vector": lists, **columns})
