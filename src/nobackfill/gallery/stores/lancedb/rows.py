"""Ids, filters, order and rows of LanceDB tables."""

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nobackfill.errors import GalleryError
from nobackfill.gallery.stores.base import Matrix, Rows, as_matrix

HIDDEN = ("_rowid", "_distance")  # columns that LanceDB adds


class Names(NamedTuple):
    """Names of the columns of a table."""

    id: str
    vector: str


class Order(NamedTuple):
    """The ids of one version of a table, ascending."""

    version: tuple[int, int]  # of the table; see `Tables.version`
    ids: pa.Array  # in the type of the table
    row_ids: pa.Array  # LanceDB's row id of each item

    def first_after(self, after: int | str | None) -> int:
        """Returns the position of the first id after `after`, which need not exist."""
        if after is None:
            return 0
        return bisect_right(range(len(self.ids)), after, key=lambda place: self.ids[place].as_py())


def read_order(table: Any, name: str, version: tuple[int, int]) -> Order:
    """Reads all ids of a table; raises if they are not unique."""
    query = table.search().select([name]).with_row_id(True)
    rows = query.limit(max(table.count_rows(), 1)).to_arrow()
    order = pc.sort_indices(rows[name])
    ids = rows[name].take(order).combine_chunks()
    if ids.null_count or pc.any(pc.equal(ids[1:], ids[:-1])).as_py():  # duplicates are adjacent
        distinct = pc.count_distinct(ids).as_py()
        raise GalleryError(
            f"Each row of the table `{table.name}` must have a different id, but its column "
            f"`{name}` has {len(ids)} rows, {ids.null_count} of them without an id, and {distinct} "
            f"different ids. Set another column with `?id=`, or remove the duplicates."
        )
    return Order(version, ids, rows["_rowid"].take(order).combine_chunks())


def read_ids(table: Any, name: str) -> pa.ChunkedArray:
    """Reads all ids of a table, in no order."""
    return table.search().select([name]).limit(max(table.count_rows(), 1)).to_arrow()[name]


def own_id(text: str, kind: pa.DataType) -> int | str | None:
    """Converts an id to the type of the table; None if the text is not such an id.

    Example:
        >>> own_id("7", pa.int64()), own_id("7", pa.string()), own_id("007", pa.int64())
        (7, '7', None)
    """
    if not pa.types.is_integer(kind):
        return text
    try:
        number = int(text)
    except ValueError:
        return None
    return number if str(number) == text and -(2**63) <= number < 2**63 else None


def is_in(name: str, values: Sequence[int | str]) -> str:
    """Returns a filter that matches these values of a column.

    Example:
        >>> is_in("id", ["o'neil", "b"])
        "`id` in ('o''neil', 'b')"
    """
    quoted = (
        str(value) if isinstance(value, int) else "'" + value.replace("'", "''") + "'"
        for value in values
    )
    return f"`{name}` in ({', '.join(quoted)})"


def as_rows(table: pa.Table, names: Names) -> Rows:
    """Converts a result to rows, ascending by id; an item without a vector has a row of NaN."""
    table = table.sort_by(names.id)
    others = [name for name in table.column_names if name not in (*names, *HIDDEN)]
    return Rows(
        [str(id) for id in table[names.id].to_pylist()],
        vectors_of(table, names.vector),
        {name: table[name].to_pylist() for name in others},
    )


def vectors_of(table: pa.Table, name: str) -> Matrix:
    """Returns the vectors of a result; with 0 dimensions if the column was removed."""
    if name not in table.column_names:
        return np.empty((len(table), 0), dtype=np.float32)
    column = table[name].combine_chunks()
    dim = column.type.list_size
    vectors = np.full((len(table), dim), np.nan, dtype=np.float32)
    valid = column.is_valid().to_numpy(zero_copy_only=False)
    vectors[valid] = as_matrix(column.flatten().to_numpy(zero_copy_only=False), dim)
    return vectors


def dim_of(schema: pa.Schema, names: Names, shown: str) -> int:
    """Returns the number of dimensions of a table's vectors; 0 if the column was removed."""
    if names.vector not in schema.names:
        return 0
    kind = schema.field(names.vector).type
    if not (pa.types.is_fixed_size_list(kind) and pa.types.is_floating(kind.value_type)):
        raise GalleryError(
            f"The column `{names.vector}` of {shown} has the type {kind}, but it must have vectors "
            f"of one length. Set another column with `?vector=`."
        )
    return int(kind.list_size)
