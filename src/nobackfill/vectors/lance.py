"""Tables of Lance, such as those of LanceDB: folders `NAME.lance`; read only."""

import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from nobackfill.errors import DataError
from nobackfill.vectors.column_names import ColumnChoice
from nobackfill.vectors.shards import Part, Shard, own_notes

ROWS = 8192  # per batch


def open_shard(path: Path) -> Shard:
    """Opens the newest version of a table."""
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
        """Returns the whole table."""

        def batches() -> Iterator[pa.RecordBatch]:
            """Yields the rows in the order of the table."""
            yield from table.search().select(columns).limit(rows).to_batches(ROWS)

        return [Part(rows, batches)]

    return Shard(path.name, table.schema, parts, own_notes(table.schema.metadata))
