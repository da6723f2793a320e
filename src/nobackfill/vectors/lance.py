"""Tables of Lance, such as those of LanceDB: folders `NAME.lance`; read only."""

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from nobackfill.errors import DataError
from nobackfill.vectors.column_names import ColumnChoice
from nobackfill.vectors.shards import Part, Shard, own_notes

PART = 2**23  # numbers of the vectors of a part


def open_shard(path: Path) -> Shard:
    """Opens the newest version of a table. Parts are a few thousand rows, read at once."""
    try:
        import lancedb
    except ImportError:
        raise DataError(
            "A Lance table requires lancedb, which is not installed. Install it by `pip install "
            "'nobackfill[lancedb]'`, or write the table as .parquet."
        ) from None
    path = Path(os.path.abspath(path))
    table = lancedb.connect(str(path.parent)).open_table(path.stem)
    rows = table.count_rows()

    def parts(choice: ColumnChoice, columns: list[str]) -> list[Part]:
        """Returns consecutive rows of the table."""
        kind = table.schema.field(columns[-1]).type
        dim = kind.list_size if pa.types.is_fixed_size_list(kind) else 1024
        step = max(1, PART // dim)
        return [
            Part(min(step, rows - start), partial(_batches, table, columns, start, step))
            for start in range(0, rows, step)
        ]

    return Shard(path.name, table.schema, parts, own_notes(table.schema.metadata))


def _batches(table: Any, columns: list[str], start: int, rows: int) -> Iterator[pa.RecordBatch]:
    """Yields some rows, in the order of the table."""
    for batch in table.search().select(columns).offset(start).limit(rows).to_batches():
        yield pa.record_batch([_released(column) for column in batch.columns], batch.schema)


def _released(column: pa.Array) -> pa.Array:
    """Copies a column of small values, as each column of Lance keeps its whole batch in memory."""
    is_vector = pa.types.is_fixed_size_list(column.type)
    return column if is_vector else column.take(pa.array(np.arange(len(column))))
