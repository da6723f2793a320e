"""Vectors: what a model made of a collection, one row per item, checked once and then trusted."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from nobackfill.errors import DataError
from nobackfill.vectors.columns import FLAGS, Values, as_column, as_flag, as_key
from nobackfill.vectors.contents import COMPATIBLE_DIM, NOTES, SPACE, Contents
from nobackfill.vectors.formats import read_contents, write_contents
from nobackfill.vectors.matrix import as_matrix, check_rows
from nobackfill.vectors.space import Space, read_space, write_space

RESERVED = ("id", "vector", "label")


@dataclass(frozen=True, init=False, eq=False, repr=False)
class Vectors:
    """What a model made of a collection: an id and a vector per item, and what else is known.

    Args:
        ids: Text or whole numbers, no two the same.
        vectors: A tensor or an array of float16, float32 or float64, one row per item. It is not
            copied, and no row of it may be zero, NaN or infinite.
        labels: The class of each item, as text or whole numbers.
        columns: More values per item by name: text, whole numbers, floats or booleans. `is_query`
            and `is_gallery` are booleans.
        space: What made the vectors, if that is known.
        compatible_dim: How many of the first dimensions meet older galleries, if not all.

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
            columns={name: read_column(name, values) for name, values in (columns or {}).items()},
            space=space,
            compatible_dim=compatible_dim,
        )
        check_lengths(self)
        check_unique(self.ids)
        check_rows(self.vectors, self.ids)
        check_dimensions(self)

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

    @property
    def dim(self) -> int:
        """How many dimensions a vector has."""
        return self.vectors.shape[1]

    def select(self, rows: Values) -> "Vectors":
        """Returns some of the items, with all that is known of them.

        Args:
            rows: One boolean per item, or row numbers in the order wanted.
        """
        index = row_numbers(rows, len(self))
        return Vectors(
            self.ids[index],
            self.vectors[torch.from_numpy(index).to(self.vectors.device)],
            None if self.labels is None else self.labels[index],
            columns={name: array[index] for name, array in self.columns.items()},
            space=self.space,
            compatible_dim=self.compatible_dim,
        )

    def save(self, path: Path | str) -> None:
        """Writes a file in the format that its suffix names, and the space beside it if known.

        The formats are .parquet, .safetensors, .npz and .npy. float64 becomes float32. An error or
        a kill leaves what was there before.
        """
        path = Path(path)
        write_contents(path, to_contents(self))
        if self.space is not None:
            write_space(path, self.space)


def load_vectors(path: Path | str) -> Vectors:
    """Reads a file that `Vectors.save` or someone else wrote, in the format that its suffix names.

    The space is taken from the file's own metadata or, failing that, from `NAME.space.json` beside
    it; what was measured after the file was written stands beside it only. Vectors in .npy and
    .safetensors are memory-mapped: looked through once, never copied, and changing the tensor does
    not change the file.
    """
    path = Path(path)
    try:
        return from_contents(read_contents(path), path)
    except DataError as error:
        raise DataError(f"{path}: {error}") from error


def to_contents(vectors: Vectors) -> Contents:
    """Returns what to write: one array per column, and at most float32."""
    matrix = vectors.vectors.cpu().contiguous()
    if matrix.dtype == torch.float64:
        matrix = matrix.float()
        check_rows(matrix, vectors.ids)  # what float32 cannot hold is infinite or zero by now
    columns = {"id": vectors.ids, **vectors.columns}
    if vectors.labels is not None:
        columns["label"] = vectors.labels
    notes = {}
    if vectors.space is not None:
        notes[SPACE] = vectors.space.to_json()
    if vectors.compatible_dim is not None:
        notes[COMPATIBLE_DIM] = str(vectors.compatible_dim)
    return Contents(matrix, columns, notes)


def from_contents(contents: Contents, path: Path) -> Vectors:
    """Checks what was read from the file at `path`."""
    columns, notes = dict(contents.columns), contents.notes
    dim = contents.vector.shape[1] if contents.vector.ndim == 2 else None
    return Vectors(
        columns.pop("id"),
        contents.vector,
        columns.pop("label", None),
        columns=columns,
        space=told_space(notes, path, dim),
        compatible_dim=read_compatible_dim(notes),
    )


def told_space(notes: dict[str, str], path: Path, dim: int | None) -> Space | None:
    """What made the vectors, with the measurements of the record beside, if that is of them."""
    beside = read_space(path, dim=dim)
    if SPACE not in notes:
        return beside
    own = Space.from_json(notes[SPACE])
    if beside is None or beside.fingerprint != own.fingerprint:
        return own
    measured = (beside.compatible_with, beside.not_compatible_with)
    return replace(own, compatible_with=measured[0], not_compatible_with=measured[1])


def read_compatible_dim(notes: dict[str, str]) -> int | None:
    """Returns the number noted under `COMPATIBLE_DIM`, if there is one."""
    text = notes.get(COMPATIBLE_DIM)
    if text is not None and not text.isdecimal():
        raise DataError(
            f"`{COMPATIBLE_DIM}` wants a number, but is {text!r}. Write the file again."
        )
    return None if text is None else int(text)


def read_column(name: str, values: Values) -> NDArray[Any]:
    """Returns a column as an array, if its name is free."""
    if name in RESERVED or name.startswith(NOTES) or not name:
        raise DataError(
            f"a column wants a name other than {', '.join(RESERVED)}, and not one that begins with "
            f"{NOTES!r}, but one is named {name!r}. Pass ids, vectors and labels as arguments of "
            f"their own, and rename other columns."
        )
    return as_flag(values, name) if name in FLAGS else as_column(values, name)


def row_numbers(rows: Values, count: int) -> NDArray[np.int64]:
    """Returns the row numbers that a boolean mask or a list of row numbers stands for."""
    index = as_column(rows, "rows")
    if index.dtype.kind == "b" and len(index) == count:
        return np.flatnonzero(index)
    if index.dtype.kind != "i":
        raise DataError(
            f"wanted {count} booleans, one per item, or row numbers, but got {len(index)} values "
            f"of {index.dtype}. Check that they are about these items."
        )
    if (outside := index[(index < 0) | (index >= count)]).size:
        raise DataError(
            f"wanted row numbers from 0 to {count - 1}, but got {outside[0]}. Check that they are "
            f"about these items."
        )
    return np.ascontiguousarray(index)


def check_lengths(vectors: Vectors) -> None:
    """Refuses columns that do not have one value per vector."""
    columns = {"id": vectors.ids, "label": vectors.labels, **vectors.columns}
    for name, column in columns.items():
        if column is not None and len(column) != len(vectors.vectors):
            raise DataError(
                f"wanted one value per vector in `{name}`, but there are {len(column)} for "
                f"{len(vectors.vectors)} vectors. Check that both come from the same items."
            )


def check_unique(ids: NDArray[Any]) -> None:
    """Refuses ids that occur twice: old and new are matched by them."""
    first = np.unique(ids, return_index=True)[1]
    if len(first) < len(ids):
        again = np.ones(len(ids), dtype=np.bool_)
        again[first] = False
        row = int(np.flatnonzero(again)[0])
        raise DataError(
            f"wanted ids that occur once, but {int(again.sum())} of {len(ids)} are repetitions, "
            f"the first being {ids[row].item()!r} (row {row}). Drop the repeated items, or give "
            f"them ids of their own."
        )


def check_dimensions(vectors: Vectors) -> None:
    """Refuses a space or a `compatible_dim` that cannot be that of these vectors."""
    compatible_dim, dim = vectors.compatible_dim, vectors.dim
    if compatible_dim is not None and not 1 <= compatible_dim <= dim:
        raise DataError(
            f"`compatible_dim` wants a number from 1 to {dim}, the dimensions there are, but is "
            f"{compatible_dim}. Leave it out if all dimensions meet older galleries."
        )
    if vectors.space is not None and vectors.space.dim != dim:
        raise DataError(
            f"the space says {vectors.space.dim} dimensions, but the vectors have {dim}. It "
            f"describes others: correct it, or leave it out (beside a file, remove .space.json)."
        )
