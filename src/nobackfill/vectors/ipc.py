"""The formats `.arrow` and `.feather`: Arrow's own, as files or streams; read only."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from nobackfill.vectors.column_names import ColumnChoice
from nobackfill.vectors.shards import Part, Shard, own_notes

MAGIC = b"ARROW1"  # first bytes of a file; a stream has none
OLD_MAGIC = b"FEA1"


def open_shard(path: Path) -> Shard:
    """Reads the schema; a file is one part, and so is a stream, whose rows are not counted."""
    with path.open("rb") as file:
        first = file.read(len(MAGIC))
    if first[:4] == OLD_MAGIC:
        raise ValueError("it is Feather version 1: write it again by a newer pyarrow or pandas")
    is_file = first == MAGIC

    def open_reader() -> pa.RecordBatchFileReader | pa.RecordBatchStreamReader:
        """Opens the file, which is mapped into memory."""
        mapped = pa.memory_map(str(path))
        return pa.ipc.open_file(mapped) if is_file else pa.ipc.open_stream(mapped)

    def batches() -> Iterator[pa.RecordBatch]:
        """Yields the rows."""
        with open_reader() as reader:
            if not is_file:
                yield from map(_whole, reader)
                return
            for number in range(reader.num_record_batches):
                yield _whole(reader.get_batch(number))

    with open_reader() as reader:
        schema = reader.schema
        rows = None
        if is_file:
            rows = sum(reader.get_batch(n).num_rows for n in range(reader.num_record_batches))

    def parts(choice: ColumnChoice, columns: list[str]) -> list[Part]:
        """Returns the whole file."""
        return [Part(rows, batches)]

    return Shard(path.name, schema, parts, own_notes(schema.metadata))


def _whole(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Returns a batch whose offsets and texts are valid; Arrow ends the process at others."""
    batch.validate(full=True)
    return batch


def read_notes(path: Path) -> dict[str, str]:
    """Reads our texts about the whole file."""
    return dict(open_shard(path).notes)
