"""Tables in files: their columns, and their rows in batches. Every format of tables makes these."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from nobackfill.errors import DataError
from nobackfill.vectors.column_names import ColumnChoice
from nobackfill.vectors.contents import NOTES

Batches = Iterator[pa.RecordBatch]

SAMPLE = 2**20  # bytes at the start of a text file of which its layout is guessed
LONGEST = 8  # how many times longer later lines may be than those in the sample


class Part(NamedTuple):
    """Consecutive rows that a thread reads."""

    rows: int | None  # None if they are counted by reading only
    batches: Callable[[], Batches]


@dataclass(frozen=True)
class Shard:
    """A file of a table, or the whole table.

    Attributes:
        name: Name of the file, for errors.
        schema: Columns as they are stored; records may be nested.
        parts: Function from the chosen columns and the stored columns to read, to the rows.
        notes: Text about the whole file, such as the space.
        text_lists: Columns of text that contain a list of numbers in each row.
        is_text: Whether all values are text, so that their types are inferred after reading.
        constants: Values of all rows of the file, such as the `label` in `label=cat/0.parquet`.
    """

    name: str
    schema: pa.Schema
    parts: Callable[[ColumnChoice, list[str]], list[Part]]
    notes: Mapping[str, str] = field(default_factory=dict)
    text_lists: frozenset[str] = frozenset()
    is_text: bool = False
    constants: Mapping[str, str] = field(default_factory=dict)


class Leaf(NamedTuple):
    """A column, which may be nested in a record.

    A list of records is followed if each list has a single record, as in the answers of an API for
    embeddings: `{"data": [{"embedding": [...]}]}`.
    """

    path: tuple[str, ...]
    kind: pa.DataType


def block_size(start: bytes, least: int) -> int:
    """Returns how many bytes of text to read at a time, so that the longest lines fit.

    Args:
        start: First bytes of the file.
        least: Bytes for files with short lines.
    """
    return max(least, LONGEST * max(map(len, start.split(b"\n"))))


def own_notes(metadata: Mapping[bytes, bytes] | None) -> dict[str, str]:
    """Returns our texts in the metadata of a file of Arrow or Parquet."""
    prefix = NOTES.encode()
    texts = {name: text for name, text in (metadata or {}).items() if name.startswith(prefix)}
    return {name.decode(): text.decode() for name, text in texts.items()}


def leaves_of(schema: pa.Schema) -> dict[str, Leaf]:
    """Returns the columns by name, those of nested records included.

    A nested column is named by its last part if no other column has that name, and otherwise by its
    whole path, such as `payload.id`.

    Example:
        >>> payload = pa.struct({"id": pa.string(), "color": pa.string()})
        >>> list(leaves_of(pa.schema({"id": pa.int64(), "payload": payload})))
        ['id', 'payload.id', 'color']
    """
    leaves = [leaf for column in schema for leaf in _leaves((column.name,), column.type)]
    last = [leaf.path[-1] for leaf in leaves]
    return {
        name if len(leaf.path) == 1 or last.count(name) == 1 else ".".join(leaf.path): leaf
        for name, leaf in zip(last, leaves, strict=True)
    }


def _leaves(path: tuple[str, ...], kind: pa.DataType) -> Iterator[Leaf]:
    """Yields the column at a path, or the columns of its records."""
    if is_list(kind) and pa.types.is_struct(kind.value_type):
        nested = list(_leaves(path, kind.value_type))
        if any(is_numbers(leaf.kind) for leaf in nested):  # otherwise of no use
            yield from nested
            return
    if pa.types.is_struct(kind):
        for child in kind:
            yield from _leaves((*path, child.name), child.type)
        return
    yield Leaf(path, kind)


def pick(batch: pa.RecordBatch, leaf: Leaf) -> pa.Array:
    """Returns the values of a column that may be nested."""
    values = batch.column(leaf.path[0])
    for name in leaf.path[1:]:
        values = pc.struct_field(_single_records(values, leaf), [name])
    if isinstance(values, pa.ExtensionArray) and is_list(leaf.kind):
        return values.storage
    # Views of text lack most functions.
    return values.cast(pa.large_string()) if _is_view(values.type) else values


def _single_records(values: pa.Array, leaf: Leaf) -> pa.Array:
    """Returns the record of each list, if each list has one."""
    if not is_list(values.type):
        return values
    lengths = values.value_lengths()
    if values.null_count or not pc.all(pc.equal(lengths, 1)).as_py():
        raise DataError(
            f"`{'.'.join(leaf.path)}` must have one record per row, but a row has "
            f"{pc.max(lengths).as_py() or 0}. Write one line for each vector."
        )
    return values.flatten()


def is_list(kind: pa.DataType) -> bool:
    """Whether a column has a list in each row, of any of Arrow's kinds."""
    kinds = pa.types
    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    return bool(kinds.is_list(kind) or kinds.is_large_list(kind) or kinds.is_fixed_size_list(kind))


def is_numbers(kind: pa.DataType) -> bool:
    """Whether a column has a list of numbers in each row."""
    return is_list(kind) and is_number(value_kind(kind))


def is_number(kind: pa.DataType) -> bool:
    """Whether values are numbers."""
    kinds = pa.types
    return bool(kinds.is_floating(kind) or kinds.is_integer(kind) or kinds.is_decimal(kind))


def value_kind(kind: pa.DataType) -> Any:
    """Returns the kind of the values in lists."""
    return (kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind).value_type


def is_text(kind: pa.DataType) -> bool:
    """Whether a column is text, of any of Arrow's kinds."""
    kinds = pa.types
    return bool(kinds.is_string(kind) or kinds.is_large_string(kind) or _is_view(kind))


def _is_view(kind: pa.DataType) -> bool:
    """Whether a column is a view of text, as polars writes."""
    return bool(getattr(pa.types, "is_string_view", lambda _: False)(kind))  # since pyarrow 16
