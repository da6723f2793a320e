"""Vectors from Python objects: arrays, tensors, lists, tables, and paths of files."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from nobackfill.core.suggest import suggest
from nobackfill.errors import ConfigError, DataError
from nobackfill.vectors import Vectors
from nobackfill.vectors.column_names import ANY, Columns
from nobackfill.vectors.columns import Values, as_key
from nobackfill.vectors.load import Loaded, read_file
from nobackfill.vectors.matrix import Data, as_matrix
from nobackfill.vectors.tables import Table, as_table, read_table, stack_rows, values_of

Source = Any  # Vectors, a `Loaded` file, a `Table`, or rows: an array, a tensor or lists


@dataclass(frozen=True, eq=False)
class Side:
    """Vectors of one model.

    Attributes:
        name: Name of the argument, for errors.
        vectors: Vectors; their ids are row numbers if `has_ids` is false.
        has_ids: Whether the ids came with the data.
        notes: Notes on what was guessed.
    """

    name: str
    vectors: Vectors
    has_ids: bool
    notes: tuple[str, ...] = ()


def as_vectors(
    data: Data,
    *,
    ids: Values | None = None,
    labels: Values | None = None,
    id: str | None = None,
    vector: str | None = None,
    label: str | None = None,
) -> Vectors:
    """Returns `Vectors` of any object that contains vectors.

    A NumPy array, a torch tensor on any device or nested lists have one row per item. A table is
    of pandas, polars, pyarrow, Hugging Face datasets, or a mapping of columns; it has a column of
    lists, or one column per dimension. Its column of ids is found by name; without one, the index
    of pandas is used if it is unique and does not merely count rows. A path names a file.

    Args:
        data: Vectors in any of these forms.
        ids: Id of each row; None for those of the data, or else row numbers.
        labels: Label of each row; None for those of the data.
        id: Name of the column of ids, if it is not found.
        vector: Name of the column of vectors, or what the names of its dimensions start with.
        label: Name of the column of labels.

    Example:
        >>> as_vectors([[1.0, 0.0], [0.0, 1.0]], labels=["cat", "dog"])
        Vectors(2 x 2 float32, labelled)
        >>> as_vectors({"code": ["a", "b"], "emb": [[1, 0], [0, 1]]}, id="code").ids
        array(['a', 'b'], dtype='<U1')
    """
    columns = Columns(id, vector, label)
    source = open_source(data, columns)
    check_label(columns, [source])
    vectors = read_side("data", source, columns).vectors
    if ids is not None:
        vectors = replace(vectors, ids=key_of(ids, "ids"))
    if labels is not None:
        vectors = replace(vectors, labels=key_of(labels, "labels"))
    return vectors


def as_rows(data: Data, name: str) -> Float[Tensor, "rows dim"]:
    """Returns vectors as a matrix, on the device where they are.

    Args:
        data: Vectors in any form; see `as_vectors`.
        name: Name of the argument, for errors.

    Example:
        >>> as_rows([[1, 0], [0, 1]], "query")
        tensor([[1., 0.],
                [0., 1.]])
    """
    source = open_source(data)
    if isinstance(source, Vectors):
        return source.vectors
    if isinstance(source, Loaded):
        return source.vectors.vectors
    if isinstance(source, Table):
        return read_side(name, source, ANY).vectors.vectors
    with naming(name):
        return _matrix_of(source, name)


def open_source(data: Data, columns: Columns = ANY) -> Source:
    """Returns Vectors, a table, or rows: the file of a path is read, and a table is recognized."""
    if isinstance(data, str | Path):
        return read_file(data, columns)
    if isinstance(data, Vectors):
        return data
    if isinstance(data, Tensor | np.ndarray):
        return data
    table = as_table(data)
    return data if table is None else table


def read_side(name: str, source: Source, columns: Columns) -> Side:
    """Reads the vectors of one model.

    Args:
        name: Name of the argument, for errors.
        source: What `open_source` returned.
        columns: Names of the columns. A source need not have the column of labels.
    """
    with naming(name):
        if isinstance(source, Loaded):
            return Side(name, source.vectors, source.has_ids, source.remarks)
        if isinstance(source, Vectors):
            if columns.label in (None, "label"):
                return Side(name, source, has_ids=True)
            labels = source.columns.get(columns.label)
            labels = None if labels is None else key_of(labels, columns.label)
            return Side(name, replace(source, labels=labels), has_ids=True)
        if not isinstance(source, Table):
            rows = _matrix_of(source, name)
            return Side(name, Vectors(np.arange(len(rows)), rows), has_ids=False)
        is_labelled = columns.label in source.names
        contents = read_table(
            source,
            id=columns.id,
            vector=columns.vector,
            label=columns.label if is_labelled else None,
        )
        rows = as_matrix(contents.vectors)
        vectors = Vectors(
            np.arange(len(rows)) if contents.ids is None else contents.ids,
            rows,
            contents.labels if is_labelled or columns.label is None else None,
            columns=contents.columns,
        )
        return Side(name, vectors, contents.ids is not None, contents.notes)


@contextmanager
def naming(argument: str) -> Iterator[None]:
    """Puts the name of an argument in front of errors."""
    try:
        yield
    except (DataError, ConfigError) as error:
        raise type(error)(f"`{argument}`: {error}") from None


def key_of(values: Any, name: str) -> NDArray[Any]:
    """Returns ids, labels or groups of any form as text or whole numbers.

    Example:
        >>> key_of(["a", "b"], "labels")
        array(['a', 'b'], dtype='<U1')
    """
    if isinstance(values, str):
        raise ConfigError(
            f"`{name}` must have a value for each row, but is the text {values!r}. To name a "
            f"column, pass {'id' if name == 'ids' else 'label'}={values!r}."
        )
    array = values_of(values, name, required=True)
    return as_key(array.astype(np.int64) if array.dtype.kind == "b" else array, name)


def _matrix_of(data: Any, name: str) -> Float[Tensor, "rows dim"]:
    """Returns rows of any form as a matrix."""
    is_rows = isinstance(data, Tensor | np.ndarray | list | tuple) or hasattr(data, "to_numpy")
    if not is_rows and hasattr(data, "__array__"):  # such as JAX
        data, is_rows = np.asarray(data), True
    if not is_rows:
        raise DataError(
            f"{type(data).__name__} holds no vectors. Pass an array, a tensor, nested lists, a "
            f"table, Vectors or the path of a file."
        )
    rows = stack_rows(data, name)
    if isinstance(rows, Tensor) and rows.dtype == torch.bfloat16:
        rows = rows.float()
    return as_matrix(rows)


def check_label(columns: Columns, sources: Iterable[Source]) -> None:
    """Raises if no source has the column of labels."""
    names: dict[str, None] = {}
    for source in sources:
        source = source.vectors if isinstance(source, Loaded) else source
        if isinstance(source, Vectors):
            names |= dict.fromkeys(["label"] * (source.labels is not None))
            names |= dict.fromkeys(source.columns)
        elif isinstance(source, Table):
            names |= dict.fromkeys(source.names)
    if columns.label is not None and columns.label not in names:
        hint = suggest(columns.label, names) if names else "Pass `labels=`, one for each row."
        raise ConfigError(f"no column `{columns.label}` in the data. {hint}")
