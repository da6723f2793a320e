"""The format `.jsonl`: a record per line, which may be nested; read by pyarrow in blocks."""

import io
import re
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
NULL = re.compile(rb"\n[ \t\r]*null\b")  # a line that pyarrow may not survive
OUTPUT_OF_BATCH = ("custom_id", "response")  # fields of an API's answer to a batch of requests


def open_shard(path: Path) -> Shard:
    """Reads the columns from the first lines. The file is read in one pass, block by block.

    In the output of a batch API, `id` names the request; the item is named by `custom_id`.
    """
    with pa.input_stream(str(path), compression="detect") as file:
        start = file.read(SAMPLE)
    block = block_size(start, BLOCK)
    with _open(path, block, None) as reader:
        sample = reader.schema
    if all(name in sample.names for name in OUTPUT_OF_BATCH) and "id" in sample.names:
        sample = sample.remove(sample.get_field_index("id"))
    schema = pa.schema([(field.name, plain_kind(field.type)) for field in sample])

    def parts(choice: ColumnChoice, columns: list[str]) -> list[Part]:
        """Returns the whole file."""
        chosen = pa.schema([schema.field(name) for name in columns])
        return [Part(None, lambda: _batches(path, block, chosen))]

    return Shard(path.name, schema, parts)


def check_records(lines: bytes) -> None:
    r"""Raises if a line begins with `null`: a block of such lines ends the process in pyarrow.

    Example:
        >>> check_records(b'\n{"id": "a", "vector": null}\n')
    """
    if b"null" in lines and NULL.search(lines):
        raise DataError("A line begins with `null`, which is no record. Remove it.")


class Lines(io.RawIOBase):
    """The bytes of a file, of which each line was checked before pyarrow reads it."""

    def __init__(self, path: Path):
        super().__init__()
        self._file = pa.input_stream(str(path), compression="detect")
        self._end = b"\n"  # how the line begins that the last bytes were of

    def readable(self) -> bool:
        """See `io.RawIOBase`."""
        return True

    def read(self, size: int = -1) -> bytes:
        """Returns the next bytes; raises if a line among them is no record."""
        data: bytes = self._file.read(None if size < 0 else size)
        text = self._end + data
        check_records(text)
        self._end = b"\n" + text[text.rindex(b"\n") :].lstrip()[: len(b"null")]
        return data

    def close(self) -> None:
        """Closes the file."""
        self._file.close()
        super().close()


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
    file = Lines(path)
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
