"""The format `.jsonl`: a record per line, which may be nested; read by pyarrow in blocks."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.json as pajson

from nobackfill.errors import DataError
from nobackfill.vectors.column_names import ColumnChoice
from nobackfill.vectors.shards import (
    SAMPLE,
    Part,
    Shard,
    block_size,
    is_list,
    is_number,
    value_kind,
)

BLOCK = 2**21  # bytes read at a time, at least
VECTOR = pa.list_(pa.float32())
OUTPUT_OF_BATCH = ("custom_id", "response")  # fields of an API's answer to a batch of requests


def open_shard(path: Path) -> Shard:
    """Reads the columns from the first lines. The file is read in one pass, block by block.

    In the output of a batch API, `id` names the request; the item is named by `custom_id`.
    """
    with pa.input_stream(str(path), compression="detect") as file:
        start = file.read(SAMPLE)
    check_first(start)
    block = block_size(start, BLOCK)
    with _open(path, block, None) as reader:
        sample = reader.schema
    if all(name in sample.names for name in OUTPUT_OF_BATCH) and "id" in sample.names:
        sample = sample.remove(sample.get_field_index("id"))
    schema = pa.schema([(field.name, plain_kind(field.type)) for field in sample])

    def parts(choice: ColumnChoice, columns: list[str]) -> list[Part]:
        """Returns the whole file."""
        wanted = pa.schema([schema.field(name) for name in columns])
        return [Part(None, lambda: _batches(path, block, wanted))]

    return Shard(path.name, schema, parts)


def check_first(data: bytes) -> None:
    """Raises if a file begins with `null`, which pyarrow does not survive.

    Example:
        >>> check_first(b'{"id": "a", "vector": null}')
    """
    if data.lstrip()[:4] == b"null":
        raise DataError("It begins with `null`, which is no record. Remove it.")


def plain_kind(kind: pa.DataType) -> pa.DataType:
    """Returns the kind to read values as: lists of numbers as float32, dates as text.

    Example:
        >>> plain_kind(pa.struct({"v": pa.list_(pa.float64()), "day": pa.timestamp("s")}))
        StructType(struct<v: list<item: float>, day: string>)
    """
    if pa.types.is_struct(kind):
        return pa.struct([(child.name, plain_kind(child.type)) for child in kind])
    if is_list(kind):
        value = value_kind(kind)
        return VECTOR if is_number(value) else pa.list_(plain_kind(value))
    return pa.string() if pa.types.is_temporal(kind) else kind


def _open(path: Path, block: int, schema: pa.Schema | None) -> Any:
    """Opens a file for reading in blocks. Only the columns of the schema are read, if given."""
    file = pa.input_stream(str(path), compression="detect")
    read = pajson.ReadOptions(block_size=block)
    parse = pajson.ParseOptions(
        explicit_schema=schema,
        unexpected_field_behavior="infer" if schema is None else "ignore",
    )
    if not hasattr(pajson, "open_json"):  # before pyarrow 20
        return pajson.read_json(file, read_options=read, parse_options=parse).to_reader()
    return pajson.open_json(file, read_options=read, parse_options=parse)


def _batches(path: Path, block: int, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yields the rows of the columns of the schema."""
    with _open(path, block, schema) as reader:
        yield from reader
