"""The format `.json`: one document with all vectors, in one of four forms.

* records: `[{"id": …, "embedding": […]}, …]`, also within an object, such as an API's answer
* columns: `{"ids": […], "embeddings": [[…], …]}`, as Chroma's `collection.get` returns
* records by id: `{"a": {"vector": […], "metadata": {…}}, …}`, as LangChain dumps
* vectors by id: `{"embedding_dict": {"a": […], …}}`, as LlamaIndex persists

pyarrow reads the first two. The last two would give it a column per item, so Python's own reader
reads them. A document is read whole.
"""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.json as pajson

from nobackfill.errors import DataError
from nobackfill.vectors import json_lines
from nobackfill.vectors.column_names import ColumnChoice
from nobackfill.vectors.shards import Part, Shard, is_list, is_numbers, value_kind

BY_ID = re.compile(rb'\s*\{\s*"(?:[^"\\]|\\.)*"\s*:\s*\{')  # starts with a key and a record
LARGEST = 2**31 - 2**10  # bytes that pyarrow reads as one block


def open_shard(path: Path) -> Shard:
    """Reads the document."""
    with pa.input_stream(str(path), compression="detect") as file:
        data = file.read()
    table = None
    if BY_ID.match(data):
        try:
            table = _by_id(json.loads(data))
        except json.JSONDecodeError:  # several records that start with a record
            table = None
    if table is None:
        table = _unpacked(_parse(data))

    def parts(choice: ColumnChoice, columns: list[str]) -> list[Part]:
        """Returns the whole document."""
        batches = table.select(columns).to_batches()
        return [Part(table.num_rows, lambda: iter(batches))]

    return Shard(path.name, table.schema, parts)


def _parse(data: bytes) -> pa.Table:
    """Returns the document as a table of one row, or the records of JSON lines."""
    json_lines.check_records(b"\n" + data.lstrip()[:8])
    is_array = data.lstrip()[:1] == b"["
    if len(data) > LARGEST:
        raise DataError("The document is larger than 2 GB. Write a line per record, as .jsonl.")
    data = b'{"rows":' + data + b"}" if is_array else data
    options = pajson.ReadOptions(block_size=len(data) + 1)
    read = pajson.read_json(
        pa.BufferReader(data),
        read_options=options,
        parse_options=pajson.ParseOptions(newlines_in_values=True),
    )
    schema = pa.schema([(field.name, json_lines.plain_kind(field.type)) for field in read.schema])
    return read.cast(schema)


def _unpacked(table: pa.Table) -> pa.Table:
    """Returns the table within a document of one row, or the table if there is none."""
    if table.num_rows != 1:
        return table
    row = table.to_batches()[0]
    columns = dict(zip(row.schema.names, row.columns, strict=True))
    inner = next(_inner_tables(columns), None)
    return table if inner is None else inner


def _inner_tables(columns: Mapping[str, pa.Array]) -> Iterator[pa.Table]:
    """Yields lists of records with vectors, and lists of vectors with lists as long."""
    lists = {name: values for name, values in columns.items() if is_list(values.type)}
    for values in lists.values():
        kind = value_kind(values.type)
        if is_list(kind) and is_numbers(kind):
            rows = len(values.flatten())
            same = {
                name: other.flatten()
                for name, other in lists.items()
                if len(other.flatten()) == rows
            }
            yield pa.table(same)
        if pa.types.is_struct(kind) and any(is_numbers(child.type) for child in kind):
            records = values.flatten()
            yield pa.table(dict(zip(kind.names, records.flatten(), strict=True)))
    for values in columns.values():
        if pa.types.is_struct(values.type):
            nested = zip(values.type.names, values.flatten(), strict=True)
            yield from _inner_tables(dict(nested))


def _by_id(document: Any) -> pa.Table | None:
    """Returns the vectors or records by id of a document, or None if it has neither."""
    if not isinstance(document, dict):
        return None
    inner = [value for value in document.values() if isinstance(value, dict) and value]
    for vectors in filter(_are_vectors, inner):
        records = {id: {"vector": vector} for id, vector in vectors.items()}
        # Add the facts in other objects with the same ids, such as `metadata_dict`.
        for facts in inner:
            if facts.keys() == vectors.keys() and all(isinstance(f, dict) for f in facts.values()):
                records = {id: {**facts[id], **record} for id, record in records.items()}
        return _table(records)
    if len(inner) == len(document) and any(map(_holds_vector, inner)):
        return _table(document)
    return next(filter(None, map(_by_id, inner)), None)


def _table(records: Mapping[str, Mapping[str, Any]]) -> pa.Table:
    """Returns records by id as a table."""
    table = pa.Table.from_pylist([{"id": id, **record} for id, record in records.items()])
    kinds = [(field.name, json_lines.plain_kind(field.type)) for field in table.schema]
    return table.cast(pa.schema(kinds))


def _are_vectors(value: Mapping[str, Any]) -> bool:
    """Whether an object has a list of numbers for each key.

    Example:
        >>> _are_vectors({"a": [0.1]}), _are_vectors({"a": [0.1], "b": "text"})
        (True, False)
    """
    return all(_holds_vector({"": item}) for item in value.values())


def _holds_vector(record: Mapping[str, Any]) -> bool:
    """Whether a record has a list of numbers.

    Example:
        >>> _holds_vector({"vector": [0.1]}), _holds_vector({"text": "a"})
        (True, False)
    """
    lists = [value for value in record.values() if isinstance(value, list) and value]
    return any(isinstance(value[0], int | float) for value in lists)
