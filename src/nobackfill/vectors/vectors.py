"""Vectors: the embeddings of a collection with ids, labels and columns, checked when created."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from nobackfill.core.page import Page, Readable
from nobackfill.errors import DataError
from nobackfill.vectors.columns import FLAGS, Values, as_column, as_flag, as_key
from nobackfill.vectors.contents import COMPATIBLE_DIM, NOTES, SPACE, Contents
from nobackfill.vectors.formats import write_contents
from nobackfill.vectors.matrix import as_matrix, check_rows
from nobackfill.vectors.space import Space

if TYPE_CHECKING:
    from pandas import DataFrame

RESERVED = ("id", "vector", "label")


@dataclass(frozen=True, init=False, eq=False, repr=False)
class Vectors(Readable):
    """The embeddings of a collection: an id and a vector per item, optionally labels and columns.

    `print` shows the first items.

    Args:
        ids: Unique ids: text or whole numbers.
        vectors: Tensor or array of float16, float32 or float64, one row per item. It is not
            copied. No row may be zero or contain NaN or infinity.
        labels: Class of each item, as text or whole numbers.
        columns: More values per item, by name: text, whole numbers, floats or booleans.
            `is_query` and `is_gallery` are booleans.
        space: Space of the vectors, if it is known.
        compatible_dim: Number of leading dimensions to compare with older galleries; None for all.

    Example:
        >>> photos = Vectors(["a", "b"], torch.eye(2), labels=[7, 8], columns={"camera": [1, 1]})
        >>> photos
        Vectors(2 x 2 float32, labelled, columns: camera)
        >>> photos.select([1]).ids
        array(['b'], dtype='<U1')
    """

    ids: NDArray[Any]
    vectors: Float[Tensor, "rows dim"]
    labels: NDArray[Any] | None
    columns: Mapping[str, NDArray[Any]]
    space: Space | None
    compatible_dim: int | None

    def __init__(
        self,
        ids: Values,
        vectors: Tensor | NDArray[Any],
        labels: Values | None = None,
        *,
        columns: Mapping[str, Values] | None = None,
        space: Space | None = None,
        compatible_dim: int | None = None,
    ):
        self.__dict__.update(
            ids=as_key(ids, "id"),
            vectors=as_matrix(vectors),
            labels=None if labels is None else as_key(labels, "label"),
            columns={name: _read_column(name, values) for name, values in (columns or {}).items()},
            space=space,
            compatible_dim=compatible_dim,
        )
        _check_lengths(self)
        _check_unique(self.ids)
        check_rows(self.vectors, self.ids)
        _check_dimensions(self)

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        parts = [f"{len(self)} x {self.dim} {str(self.vectors.dtype).removeprefix('torch.')}"]
        if self.labels is not None:
            parts.append("labelled")
        if self.columns:
            parts.append(f"columns: {' '.join(self.columns)}")
        if self.space is not None:
            parts.append(f"space: {self.space.fingerprint}")
        if self.compatible_dim is not None:
            parts.append(f"compatible_dim: {self.compatible_dim}")
        return f"Vectors({', '.join(parts)})"

    def page(self) -> Page:
        """The size of the vectors, and a table of the first items."""
        from nobackfill.vectors.overview import vectors_page

        return vectors_page(self)

    def to_pandas(self) -> "DataFrame":
        """A DataFrame of the ids, vectors (an array each), labels and columns. Requires pandas."""
        from nobackfill.core.notebook import data_frame

        label = {} if self.labels is None else {"label": self.labels}
        rows = list(self.vectors.cpu().numpy())
        return data_frame({"id": self.ids, "vector": rows, **label, **self.columns})

    @property
    def dim(self) -> int:
        """Number of dimensions of a vector."""
        return self.vectors.shape[1]

    def select(self, rows: Values) -> "Vectors":
        """Returns a subset of the items, with their labels and columns.

        Args:
            rows: One boolean per item, or row numbers in the order of the result.
        """
        index = _row_numbers(rows, len(self))
        return Vectors(
            self.ids[index],
            self.vectors[torch.from_numpy(index).to(self.vectors.device)],
            None if self.labels is None else self.labels[index],
            columns={name: array[index] for name, array in self.columns.items()},
            space=self.space,
            compatible_dim=self.compatible_dim,
        )

    def save(self, path: Path | str) -> None:
        """Writes a file in the format of its suffix; the space is stored in the file.

        The formats are .parquet, .safetensors, .npz and .npy; for .npy the space is stored in
        `NAME.npy.space.json`. float64 becomes float32. An error or a killed process leaves the
        previous file unchanged.
        """
        write_contents(Path(path), _to_contents(self))


def _to_contents(vectors: Vectors) -> Contents:
    """Returns the contents to write, with vectors in at most float32."""
    matrix = vectors.vectors.cpu().contiguous()
    if matrix.dtype == torch.float64:
        matrix = matrix.float()
        check_rows(matrix, vectors.ids)  # values beyond float32 became infinite or zero
    columns = {"id": vectors.ids, **vectors.columns}
    if vectors.labels is not None:
        columns["label"] = vectors.labels
    notes = {}
    if vectors.space is not None:
        notes[SPACE] = vectors.space.to_json()
    if vectors.compatible_dim is not None:
        notes[COMPATIBLE_DIM] = str(vectors.compatible_dim)
    return Contents(matrix, columns, notes)


def _read_column(name: str, values: Values) -> NDArray[Any]:
    """Returns a column as an array, if its name is allowed."""
    if name in RESERVED or name.startswith(NOTES) or not name:
        raise DataError(
            f"A column is named {name!r}. The names {', '.join(RESERVED)} and those that start "
            f"with {NOTES!r} are reserved: pass ids, vectors and labels as arguments of their own, "
            f"and rename other columns."
        )
    return as_flag(values, name) if name in FLAGS else as_column(values, name)


def _row_numbers(rows: Values, count: int) -> NDArray[np.int64]:
    """Converts a boolean mask or a list of row numbers to row numbers."""
    index = as_column(rows, "rows")
    if index.dtype.kind == "b" and len(index) == count:
        return np.flatnonzero(index)
    if index.dtype.kind != "i":
        raise DataError(
            f"Pass {count} booleans, one per item, or row numbers, not {len(index)} values of "
            f"{index.dtype}."
        )
    if (outside := index[(index < 0) | (index >= count)]).size:
        raise DataError(f"Row numbers must be from 0 to {count - 1}, not {outside[0]}.")
    return np.ascontiguousarray(index)


def _check_lengths(vectors: Vectors) -> None:
    """Raises if a column does not have one value per vector."""
    columns = {"id": vectors.ids, "label": vectors.labels, **vectors.columns}
    for name, column in columns.items():
        if column is not None and len(column) != len(vectors.vectors):
            raise DataError(
                f"`{name}` must have one value per vector, but has {len(column)} for "
                f"{len(vectors.vectors)} vectors. Check that both come from the same items."
            )


def _check_unique(ids: NDArray[Any]) -> None:
    """Raises if an id occurs twice: old and new vectors are matched by id."""
    if (ids[1:] > ids[:-1]).all():  # in ascending order, as many files are
        return
    if len(set(ids.tolist())) < len(ids):  # faster than sorting texts
        first = np.unique(ids, return_index=True)[1]
        repeated = np.ones(len(ids), dtype=np.bool_)
        repeated[first] = False
        row = int(np.flatnonzero(repeated)[0])
        raise DataError(
            f"Ids must be unique, but {int(repeated.sum())} of {len(ids)} are repetitions, the "
            f"first is {ids[row].item()!r} (row {row}). Drop the repeated items, or give them ids "
            f"of their own."
        )


def _check_dimensions(vectors: Vectors) -> None:
    """Raises if the space or `compatible_dim` does not fit the vectors."""
    compatible_dim, dim = vectors.compatible_dim, vectors.dim
    if compatible_dim is not None and not 1 <= compatible_dim <= dim:
        raise DataError(
            f"`compatible_dim` must be from 1 to {dim}, the dimensions of the vectors, not "
            f"{compatible_dim}. Leave it out to compare all dimensions with older galleries."
        )
    if vectors.space is not None and vectors.space.dim != dim:
        raise DataError(
            f"The space has {vectors.space.dim} dimensions, but the vectors have {dim}. It belongs "
            f"to other vectors: correct it, or leave it out (for a file, remove .space.json)."
        )
