"""The format `.parquet`: vectors and columns as a table, written and read in batches of rows."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from torch import Tensor

from nobackfill.vectors.column_names import ColumnChoice
from nobackfill.vectors.contents import Contents
from nobackfill.vectors.shards import Part, Shard, own_notes

ROWS = 8192  # per batch
BUFFER = 2**20  # bytes read at a time; otherwise Arrow fetches whole columns ahead


def open_shard(path: Path) -> Shard:
    """Reads the schema; each row group is a part."""
    with _open(path) as file:
        metadata, schema = file.metadata, file.schema_arrow

    def parts(choice: ColumnChoice, columns: list[str]) -> list[Part]:
        """Returns the row groups."""
        sizes = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
        return [
            Part(size, partial(_batches, path, metadata, group, columns))
            for group, size in enumerate(sizes)
        ]

    return Shard(path.name, schema, parts, own_notes(schema.metadata))


def read_notes(path: Path) -> dict[str, str]:
    """Reads our texts about the whole file."""
    return own_notes(pq.read_schema(path).metadata)


def _open(path: Path, metadata: pq.FileMetaData | None = None) -> pq.ParquetFile:
    """Opens a file for reading in batches; `metadata` saves reading it again."""
    return pq.ParquetFile(path, metadata=metadata, pre_buffer=False, buffer_size=BUFFER)


def _batches(
    path: Path, metadata: pq.FileMetaData, group: int, columns: list[str]
) -> Iterator[pa.RecordBatch]:
    """Yields the rows of a row group, which may be as long as the file."""
    with _open(path, metadata) as file:
        yield from file.iter_batches(ROWS, row_groups=[group], columns=columns, use_threads=False)


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
        name: _to_arrow(array[start : start + ROWS]) for name, array in contents.columns.items()
    }
    return pa.RecordBatch.from_pydict({"id": columns.pop("id"), "vector": lists, **columns})


def _to_arrow(array: NDArray[Any]) -> pa.Array:
    """Returns a part of a column."""
    return pa.array(array.tolist(), pa.string()) if array.dtype.kind == "T" else pa.array(array)
