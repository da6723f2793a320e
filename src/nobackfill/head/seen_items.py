"""Marks that identify the items a head was fitted on.

A mark is 64 bits of a digest, from which ids cannot be read. Each item has two: one of its id and
one of its new vector. The vector helps if ids merely count rows, and the id helps if vectors are
computed again with small differences.
"""

from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from nobackfill.errors import DataError
from nobackfill.vectors import Vectors
from nobackfill.vectors.contents import FITTED
from nobackfill.vectors.matrix import blocks

BYTES = 8  # size of a mark

Marks = NDArray[np.uint64]


def fit_marks(
    ids: NDArray[Any] | None,
    vectors: Float[Tensor, "items new_dim"],
    rows: Int[Tensor, " used"],
    modality: Int[Tensor, " items"] | None,
) -> tuple[Marks, ...]:
    """Returns the marks of the items that each map was fitted on; of vectors alone without ids."""
    used = np.sort(rows.cpu().numpy())
    kinds = [] if ids is None else [id_marks(ids)]
    marks = np.stack([*kinds, vector_marks(vectors)])
    if modality is None:
        return (np.unique(marks[:, used]),)
    names = modality.numpy()
    return tuple(np.unique(marks[:, used[names[used] == name]]) for name in np.unique(names))


def id_marks(ids: NDArray[Any]) -> Marks:
    """Returns the mark of each id."""
    return _digests((str(item).encode(errors="surrogatepass") for item in ids.tolist()), b"id")


def vector_marks(vectors: Float[Tensor, "rows dim"]) -> Marks:
    """Returns the mark of each vector in single precision; zeros at its end do not count.

    Example:
        >>> import torch
        >>> bool((vector_marks(torch.eye(2)) == vector_marks(torch.eye(2, 3))).all())
        True
    """
    marks = []
    for _, block in blocks(vectors):
        rows = block.cpu().float().numpy().astype("<f4")
        marks.append(_digests((row.tobytes().rstrip(b"\0") for row in rows), b"vector"))
    return np.concatenate(marks)


def seen_rows(file: Vectors, marks: Iterable[Marks]) -> NDArray[np.bool_]:
    """Returns which items a head was fitted on, by vector, and by id unless ids count rows."""
    fitted = np.concatenate(list(marks))
    seen: NDArray[np.bool_] = np.isin(vector_marks(file.vectors), fitted)
    if not counts_rows(file.ids):
        seen |= np.isin(id_marks(file.ids), fitted)
    return seen


def counts_rows(ids: NDArray[Any]) -> bool:
    """Returns whether ids are consecutive whole numbers, which another file may have too."""
    return ids.dtype.kind == "i" and bool((np.diff(ids) == 1).all())


def columns_with_fitted(file: Vectors, marks: tuple[Marks, ...]) -> Mapping[str, NDArray[Any]]:
    """Returns the columns of a file with `fitted`: whether a head was fitted on the item.

    Items that an earlier head was fitted on stay marked.
    """
    if not marks:
        return file.columns
    before = file.columns.get(FITTED)
    if before is not None and before.dtype.kind != "b":
        raise DataError(
            f"The column `{FITTED}` must be true for items that a head was fitted on, else false, "
            f"but it is of {before.dtype} and starts with {before[:3].tolist()}. Rename it."
        )
    seen = seen_rows(file, marks)
    return {**file.columns, FITTED: seen if before is None else seen | before}


def _digests(texts: Iterable[bytes], kind: bytes) -> Marks:
    """Returns the mark of each text; `kind` separates marks of ids and of vectors."""
    joined = b"".join(blake2b(text, digest_size=BYTES, person=kind).digest() for text in texts)
    return np.frombuffer(joined, dtype="<u8").astype(np.uint64)
