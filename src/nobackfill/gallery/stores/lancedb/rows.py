"""Tables of LanceDB: ids in filters and in order, rows as ours, lengths of vectors."""

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nobackfill.errors import GalleryError
from nobackfill.gallery.stores.base import Matrix, Rows, as_matrix

HIDDEN = ("_rowid", "_distance")  # columns that are the engine's


class Names(NamedTuple):
    """How a table calls its columns.

    Attributes:
        id: The column of ids.
        vector: The column of vectors.
    """

    id: str
    vector: str


class Order(NamedTuple):
    """The ids of one version of a table, ascending; vectors stay where they are.

    Attributes:
        version: Of the table.
        ids: As the table has them.
        row_ids: By which LanceDB finds each row.
    """

    version: tuple[int, int]
    ids: pa.Array
    row_ids: pa.Array

    def first_after(self, after: int | str | None) -> int:
        """The place of the first id behind another, which need not be there."""
        if after is None:
            return 0
        return bisect_right(range(len(self.ids)), after, key=lambda place: self.ids[place].as_py())


def read_order(table: Any, name: str, version: tuple[int, int]) -> Order:
    """Reads all ids of a table.

    Args:
        table: Of LanceDB, as it was opened.
        name: Of the column of ids.
        version: By which its changes are seen.
    """
    question = table.search().select([name]).with_row_id(True)
    found = question.limit(max(table.count_rows(), 1)).to_arrow()
    order = pc.sort_indices(found[name])
    ids = found[name].take(order).combine_chunks()
    if ids.null_count or pc.any(pc.equal(ids[1:], ids[:-1])).as_py():  # doubles are neighbours
        unlike = pc.count_distinct(ids).as_py()
        raise GalleryError(
            f"wanted an id for each row of the table `{table.name}`, each another one, but its "
            f"column `{name}` has {len(ids)} rows, {ids.null_count} of them without, and {unlike} "
            f"different ids. Name another column by `?id=`, or remove the doubles."
        )
    return Order(version, ids, found["_rowid"].take(order).combine_chunks())


def own_id(one: str, kind: pa.DataType) -> int | str | None:
    """An id as the table has it; None for a text that is no id there.

    Example:
        >>> own_id("7", pa.int64()), own_id("7", pa.string()), own_id("007", pa.int64())
        (7, '7', None)
    """
    if not pa.types.is_integer(kind):
        return one
    try:
        number = int(one)
    except ValueError:
        return None
    return number if str(number) == one and -(2**63) <= number < 2**63 else None


def is_in(name: str, values: Sequence[int | str]) -> str:
    """A filter for some values of a column.

    Example:
        >>> is_in("id", ["o'neil", "b"])
        "`id` in ('o''neil', 'b')"
    """
    quoted = (
        str(one) if isinstance(one, int) else "'" + one.replace("'", "''") + "'" for one in values
    )
    return f"`{name}` in ({', '.join(quoted)})"


def as_rows(found: pa.Table, names: Names) -> Rows:
    """What was found, ascending by id; an item without a vector has a row of NaN."""
    found = found.sort_by(names.id)
    others = [name for name in found.column_names if name not in (*names, *HIDDEN)]
    return Rows(
        [str(one) for one in found[names.id].to_pylist()],
        vectors_of(found, names.vector),
        {name: found[name].to_pylist() for name in others},
    )


def vectors_of(found: pa.Table, name: str) -> Matrix:
    """The vectors of some rows; of no dimension where the column is gone."""
    if name not in found.column_names:
        return np.empty((len(found), 0), dtype=np.float32)
    column = found[name].combine_chunks()
    dim = column.type.list_size
    vectors = np.full((len(found), dim), np.nan, dtype=np.float32)
    there = column.is_valid().to_numpy(zero_copy_only=False)
    vectors[there] = as_matrix(column.flatten().to_numpy(zero_copy_only=False), dim)
    return vectors


def dim_of(schema: pa.Schema, names: Names, shown: str) -> int:
    """How many dimensions a table's vectors have; 0 where the column is gone.

    Args:
        schema: Of the table.
        names: Of its columns.
        shown: Where it is.
    """
    if names.vector not in schema.names:
        return 0
    kind = schema.field(names.vector).type
    if not (pa.types.is_fixed_size_list(kind) and pa.types.is_floating(kind.value_type)):
        raise GalleryError(
            f"wanted vectors of one length in the column `{names.vector}` of {shown}, but it is of "
            f"the type {kind}. Name another one by `?vector=`."
        )
    return int(kind.list_size)
