"""Columns of Arrow as arrays of NumPy: ids, labels and other values of each row."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from nobackfill.errors import DataError
from nobackfill.vectors.columns import as_column, check_key, nul_at_end, text_type
from nobackfill.vectors.contents import MEANINGFUL
from nobackfill.vectors.shards import is_text

KEYS = ("id", "label")  # columns that must have a value in each row
WHOLE = r"^(0|-?[1-9][0-9]{0,17})$"  # numbers that text loses nothing of: 7, but not 007
DASHES = (8, 13, 18, 23)  # in the text of a UUID


def to_numpy(column: pa.ChunkedArray, name: str) -> NDArray[Any]:
    """Returns a column as an array. Missing text becomes "", a missing number NaN.

    Missing ids, labels and booleans are errors. UUIDs, dates and times become text.
    """
    kinds, kind = pa.types, column.type
    if isinstance(kind, pa.BaseExtensionType):
        column = _storage(column)
        kind = column.type
    if kinds.is_dictionary(kind):
        column = column.cast(kind.value_type)
        kind = column.type
    if kinds.is_fixed_size_binary(kind) and kind.byte_width == 16 and not column.null_count:
        return _uuid_text(column)
    if kinds.is_temporal(kind):
        column = column.cast(pa.string())
    if kinds.is_decimal(kind):
        column = column.cast(pa.float64())
    if is_text(column.type) and name not in KEYS:
        column = column.cast(pa.large_string()).fill_null("")
    is_whole = kinds.is_integer(column.type) and name not in (*KEYS, *MEANINGFUL)
    if column.null_count and is_whole:
        column = column.cast(pa.float64())
    if column.null_count and not kinds.is_floating(column.type):
        raise DataError(
            f"Column `{name}` must have a value in each row, but {column.null_count} of "
            f"{len(column)} are missing, the first in row {column.is_null().index(True).as_py()}. "
            f"Fill them in, or drop {'these rows' if name in KEYS else 'the column'}."
        )
    if is_text(column.type):
        longest = int(pc.max(pc.utf8_length(column)).as_py() or 0)
        if name in KEYS:
            check_key(longest, len(column), name)
        if (ends := pc.index(pc.ends_with(column, "\0"), True).as_py()) >= 0:
            raise nul_at_end(name, ends)
        if name not in KEYS and (kind := text_type(longest, len(column))) is not np.str_:
            chunks = [np.array(chunk.to_pylist(), dtype=kind) for chunk in column.chunks]
            return np.concatenate(chunks)
        if pc.all(pc.string_is_ascii(column)).as_py():
            return _ascii_text(column)
    return as_column(column.to_numpy(), name)


def typed_text(column: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
    """Returns text as whole numbers, floats or booleans, if all values can be converted.

    Ids and labels become whole numbers only if they are written like them: `007` remains text.

    Example:
        >>> typed_text(pa.chunked_array([["7", "8"]]), "id").type
        DataType(int64)
        >>> typed_text(pa.chunked_array([["007", "8"]]), "id").type
        DataType(string)
    """
    present = pc.if_else(pc.equal(pc.utf8_trim_whitespace(column), ""), None, column)
    if present.null_count == len(present):
        return present if name in KEYS else column
    if pc.all(pc.match_substring_regex(present, WHOLE)).as_py():
        return present.cast(pa.int64())
    if name in KEYS:
        return present
    for kind in (pa.float64(), pa.bool_()):
        try:
            return present.cast(kind)
        except pa.ArrowInvalid:
            continue
    return column


def text_bytes(column: pa.ChunkedArray) -> int:
    """Returns the memory that a column of text takes in NumPy."""
    if not is_text(column.type):
        return 0
    longest = int(pc.max(pc.utf8_length(column)).as_py() or 0)
    kind, rows = text_type(longest, len(column)), len(column)
    if kind is np.str_:  # padded
        return 4 * longest * rows
    return int(kind.itemsize) * rows + int(pc.sum(pc.binary_length(column)).as_py() or 0)


def _storage(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Returns a column of an extension type, such as UUIDs, as it is stored."""
    chunks = [chunk.storage for chunk in column.chunks]
    return pa.chunked_array(chunks, column.type.storage_type)


def _ascii_text(column: pa.ChunkedArray) -> NDArray[Any]:
    """Returns text as an array, without a Python object for each value."""
    width = max(1, int(pc.max(pc.binary_length(column)).as_py() or 0))
    padded = pc.ascii_rpad(column, width, padding="\0")
    texts = [np.frombuffer(_data(chunk), f"S{width}") for chunk in padded.chunks]
    return (np.concatenate(texts) if texts else np.empty(0, "S1")).astype(f"U{width}")


def _data(texts: pa.Array) -> pa.Buffer:
    """Returns the bytes of all texts of an array, one after the other."""
    _, offsets, data = texts.buffers()
    kind = np.int64 if pa.types.is_large_string(texts.type) else np.int32
    places = np.frombuffer(offsets, kind)[texts.offset : texts.offset + len(texts) + 1]
    return data.slice(int(places[0]), int(places[-1] - places[0])) if len(texts) else b""


def _uuid_text(column: pa.ChunkedArray) -> NDArray[Any]:
    """Returns the text of UUIDs, such as `3fa85f64-5717-4562-b3fc-2c963f66afa6`."""
    array = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    _, data = array.buffers()
    start = 16 * array.offset
    raw = np.frombuffer(data, np.uint8)[start : start + 16 * len(array)].reshape(-1, 16)
    digits = np.frombuffer(b"0123456789abcdef", np.uint8)
    text = np.full((len(raw), 36), ord("-"), dtype=np.uint8)
    places = [place for place in range(36) if place not in DASHES]
    text[:, places[0::2]], text[:, places[1::2]] = digits[raw >> 4], digits[raw & 15]
    return text.view("S36")[:, 0].astype("U36")
