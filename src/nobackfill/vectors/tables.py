"""Tables in memory: pandas, polars, pyarrow, a mapping of columns, or a list of records.

A table is recognized by its class, so no library is imported that the caller has not imported.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from nobackfill.errors import DataError
from nobackfill.vectors.column_names import ColumnChoice, choose_columns
from nobackfill.vectors.columns import as_column
from nobackfill.vectors.contents import MEANINGFUL

EXACT = 2**53  # whole numbers below it are exact as floats

Column = Any  # a column of any library, or a list


@dataclass(frozen=True, eq=False)
class Table:
    """A table of any library.

    Attributes:
        names: Names of the columns.
        column: Function from a name to the column.
        lists: Columns with a list in each row.
        floats: Columns of floating point numbers.
        index: Index of pandas, if it identifies rows.
        notes: Notes on the index.
    """

    names: list[str]
    column: Callable[[str], Column]
    lists: frozenset[str] = frozenset()
    floats: frozenset[str] = frozenset()
    index: NDArray[Any] | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class TableContents:
    """Vectors of a table, and what else it has of each row."""

    vectors: NDArray[Any] | Tensor
    ids: NDArray[Any] | None  # None if no column and no index identifies rows
    labels: NDArray[Any] | None
    columns: dict[str, NDArray[Any]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def as_table(data: Any) -> Table | None:
    """Returns the table, or None if `data` is no table.

    Example:
        >>> as_table({"id": ["a"], "vector": [[1.0]]}).names
        ['id', 'vector']
        >>> as_table([[1.0, 2.0]]) is None
        True
    """
    library, kind = type(data).__module__.split(".")[0], type(data).__name__
    if library == "pandas" and kind == "DataFrame":
        return _of_pandas(data)
    if library == "polars" and kind in ("DataFrame", "LazyFrame"):
        return _of_polars(data.collect() if kind == "LazyFrame" else data)
    if library == "datasets" and hasattr(data, "with_format"):
        return _of_arrow(data.with_format("arrow")[:])
    if library == "pyarrow" and kind in ("Table", "RecordBatch"):
        return _of_arrow(data)
    if isinstance(data, Mapping):
        columns = {str(name): values for name, values in data.items() if values is not None}
        lists = frozenset(name for name, values in columns.items() if _first_is_list(values))
        return Table(list(columns), columns.__getitem__, lists)
    if isinstance(data, Sequence) and len(data) and isinstance(data[0], Mapping):
        names = dict.fromkeys(name for record in data for name in record)
        return as_table({name: [record.get(name) for record in data] for name in names})
    if library not in ("numpy", "torch") and hasattr(data, "__arrow_c_stream__"):
        import pyarrow as pa

        return None if kind == "Series" else _of_arrow(pa.table(data))
    return None


def read_table(
    table: Table, *, id: str | None = None, vector: str | None = None, label: str | None = None
) -> TableContents:
    """Reads the vectors, ids, labels and other columns of a table.

    Args:
        table: Table of any library.
        id: Column of ids, if it is known.
        vector: Column of vectors, or the stem of wide columns, if it is known.
        label: Column of labels, if it is known and in the table.
    """
    choice = _choose(table, id=id, vector=vector, label=label)
    # Read vectors.
    vectors: NDArray[Any] | Tensor
    if choice.is_wide:
        vectors = np.stack([values_of(table.column(name), name) for name in choice.vector], axis=1)
    else:
        vectors = stack_rows(table.column(choice.vector[0]), choice.vector[0])
    # Read ids and labels.
    ids, notes = table.index, [note for note in choice.notes if not note.startswith("row numbers")]
    if choice.id is not None:
        ids = values_of(table.column(choice.id), choice.id, required=True)
    else:
        notes += table.notes
    labels = None
    if choice.label is not None:
        labels = values_of(table.column(choice.label), choice.label, required=True)
    # Read other columns; those of lists, records and the like are left out.
    columns = {}
    used = {choice.id, choice.label, *choice.vector, *choice.unused}
    for name in table.names:
        if name in used or name.startswith("nobackfill."):
            continue
        try:
            values = values_of(table.column(name), name)
        except DataError:
            if name in MEANINGFUL:
                raise
            continue
        if len(values) == len(vectors):
            columns[name] = values
    return TableContents(vectors, ids, labels, columns, tuple(notes))


def stack_rows(column: Column, name: str) -> NDArray[Any] | Tensor:
    """Stacks the rows of a column of lists, or of a list of rows, to a matrix.

    Lists of Python numbers become float32, as in torch.

    Example:
        >>> stack_rows([[1, 2], [3, 4]], "vector")
        array([[1., 2.],
               [3., 4.]], dtype=float32)
    """
    if isinstance(column, Tensor):
        return column
    column = _from_library(column)
    if isinstance(column, np.ndarray) and column.dtype != object:
        return column
    rows = list(column)
    if rows and all(isinstance(row, Tensor) for row in rows):
        rows = [row.detach().cpu().float().numpy() for row in rows]
    _check_rows(rows, name)
    if any(isinstance(row, np.ndarray) for row in rows):
        return np.stack(rows)
    try:
        return np.array(rows, dtype=np.float32)
    except (TypeError, ValueError):
        raise DataError(
            f"`{name}` must have a list of numbers in each row, but starts with {rows[0]!r:.80}."
        ) from None


def values_of(column: Column, name: str, *, required: bool = False) -> NDArray[Any]:
    """Returns a column of one value per row as text, whole numbers, floats or booleans.

    Missing text becomes "", unless each row requires a value. UUIDs become text.

    Example:
        >>> values_of(["a", None], "color")
        array(['a', ''], dtype='<U1')
    """
    if isinstance(column, Tensor):
        return as_column(column, name)
    values = _from_library(column)
    if not isinstance(values, np.ndarray):
        values = _object_array(values)
    if values.dtype.kind == "f" and required:
        if (
            np.isfinite(values).all()
            and (values == np.trunc(values)).all()
            and (abs(values) < EXACT).all()
        ):
            whole: NDArray[Any] = values.astype(np.int64)  # pandas has floats next to gaps
            return whole
        _check_present(np.isnan(values), name)
    if values.dtype.kind in "OT":
        values = values.astype(object)
        is_missing = np.array([value is None or value is not value or _is_na(value)
                               for value in values], dtype=bool)  # fmt: skip
        if required:
            _check_present(is_missing, name)
        kinds = {type(value) for value in values[~is_missing].tolist()}
        if kinds == {UUID}:
            values = np.array([str(value) for value in values.tolist()], dtype=object)
            kinds = {str}
        if kinds == {str} and is_missing.any():
            values = np.where(is_missing, "", values)
    return as_column(values, name)


def _choose(table: Table, *, id: str | None, vector: str | None, label: str | None) -> ColumnChoice:
    """Chooses columns; a table of floats alone, without numbered names, is a matrix."""
    try:
        return choose_columns(table.names, id=id, vector=vector, label=label, lists=table.lists)
    except DataError:
        is_numbered = any(name[-1:].isdigit() for name in table.names)
        if vector or is_numbered or len(table.names) < 2 or set(table.names) != table.floats:
            raise
        return ColumnChoice(tuple(table.names))


def _of_pandas(frame: Any) -> Table:
    """Describes a table of pandas. Its index is the ids if it is unique and does not count rows."""
    names = [str(name) for name in frame.columns]
    places = {name: place for place, name in enumerate(names)}
    kinds = dict(zip(names, frame.dtypes, strict=True))
    lists = [name for name in names if _first_is_list(frame.iloc[:1, places[name]].tolist())]
    floats = [name for name in names if getattr(kinds[name], "kind", "") == "f"]
    index, values = None, frame.index
    notes: tuple[str, ...] = ()
    if values.nlevels == 1 and values.is_unique and not _counts_rows(values.to_numpy()):
        index = values_of(values, "index", required=True)
        notes = ("the index is read as the id",)
    elif not values.is_unique or values.nlevels > 1:
        notes = ("the index is not used, as it does not name each row by one value of its own",)
    return Table(
        names,
        lambda name: frame.iloc[:, places[name]],
        frozenset(lists),
        frozenset(floats),
        index,
        notes,
    )


def _of_polars(frame: Any) -> Table:
    """Describes a table of polars."""
    lists = [name for name, kind in frame.schema.items() if kind.is_nested()]
    floats = [name for name, kind in frame.schema.items() if kind.is_float()]
    return Table(list(frame.columns), frame.get_column, frozenset(lists), frozenset(floats))


def _of_arrow(table: Any) -> Table:
    """Describes a table of pyarrow."""
    kinds = {field.name: str(field.type) for field in table.schema}
    lists = [name for name, kind in kinds.items() if "list<" in kind]
    floats = [name for name, kind in kinds.items() if kind in ("halffloat", "float", "double")]
    return Table(list(table.schema.names), table.column, frozenset(lists), frozenset(floats))


def _from_library(column: Column) -> Any:
    """Returns a column of pandas, polars or pyarrow as an array of values or of rows."""
    library = type(column).__module__.split(".")[0]
    if library == "polars" and column.dtype.is_nested():
        return _polars_rows(column)
    if library == "pyarrow":
        return _arrow_values(column)
    return column.to_numpy() if hasattr(column, "to_numpy") else column


def _polars_rows(column: Any) -> Any:
    """Returns a column of lists as a matrix, or as a list of rows if their lengths differ."""
    if hasattr(column.dtype, "shape"):  # all rows have one length
        return column.to_list() if column.null_count() else column.to_numpy()
    if not hasattr(column.dtype, "inner"):
        raise DataError(f"`{column.name}` has records in its rows, not lists of numbers.")
    lengths = column.list.len()
    if column.null_count() or lengths.n_unique() != 1 or not lengths[0]:
        return column.to_list()
    return column.explode().to_numpy().reshape(len(column), -1)


def _arrow_values(column: Any) -> Any:
    """Returns a column of pyarrow as an array, or as a list of rows if their lengths differ."""
    kind = str(column.type)
    if "list<" in kind:
        lists = column.combine_chunks() if hasattr(column, "chunks") else column
        if lists.null_count or len(lists.value_lengths().unique()) != 1:
            return lists.to_pylist()
        return lists.flatten().to_numpy(zero_copy_only=False).reshape(len(lists), -1)
    if kind.startswith("dictionary"):
        column = column.cast(column.type.value_type)
    if column.null_count or kind in ("string", "large_string", "string_view"):
        return _object_array(column.to_pylist())
    if hasattr(column, "chunks"):
        return column.to_numpy()
    return column.to_numpy(zero_copy_only=False)


def _check_rows(rows: Sequence[Any], name: str) -> None:
    """Raises at the first row that is missing, a text, or of another length than the first."""
    for number, row in enumerate(rows):
        if row is None or isinstance(row, float) or _is_na(row):
            raise DataError(f"`{name}` has no vector in row {number}. Embed it, or drop the row.")
        if isinstance(row, str | bytes):
            raise DataError(
                f"`{name}` has text in row {number}: {row!r:.40}. Convert it to numbers, e.g. by "
                f"`json.loads`."
            )
        if not hasattr(row, "__len__") or getattr(row, "ndim", 1) != 1:
            raise DataError(
                f"`{name}` must have one vector per row, but row {number} is {row!r:.80}. Stack "
                f"vectors as rows; a single one by `[vector]`."
            )
        if len(row) != len(rows[0]):
            raise DataError(
                f"`{name}` has {len(row)} dimensions in row {number}, and {len(rows[0])} in row 0. "
                f"Embed these items again with one model, or drop them."
            )


def _check_present(is_missing: NDArray[np.bool_], name: str) -> None:
    """Raises if a value is missing."""
    if is_missing.any():
        raise DataError(
            f"`{name}` must have a value in each row, but {int(is_missing.sum())} of "
            f"{len(is_missing)} are missing, the first in row {int(is_missing.argmax())}. Fill "
            f"them in, or drop these rows."
        )


def _first_is_list(values: Any) -> bool:
    """Whether the first value of a column is a list or an array of numbers."""
    if isinstance(values, Tensor | np.ndarray) and values.ndim == 2:
        return True
    first = next(iter(values), None) if hasattr(values, "__iter__") else None
    return isinstance(first, list | tuple | Tensor) or getattr(first, "ndim", 0) == 1


def _counts_rows(values: NDArray[Any]) -> bool:
    """Whether an index is 0, 1, 2, …, as pandas makes it."""
    return values.dtype.kind == "i" and np.array_equal(values, np.arange(len(values)))


def _is_na(value: Any) -> bool:
    """Whether a value is the missing value of pandas."""
    return type(value).__name__ in ("NAType", "NaTType")


def _object_array(values: Any) -> NDArray[Any]:
    """Returns values as an array of objects, also if they have lengths."""
    values = list(values)
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array
