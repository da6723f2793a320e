"""Marks of the items that a head was fitted on, by which it knows them again.

A mark is 64 bits of a digest: ids cannot be read from it, only compared with. Each item has two,
of its id and of its new vector. Ids may merely count the rows of a file, and vectors may be made
again with other last digits: the one helps where the other does not.
"""

from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from nobackfill.errors import DataError
from nobackfill.head.inputs import Rows
from nobackfill.vectors import Vectors
from nobackfill.vectors.contents import FITTED
from nobackfill.vectors.matrix import blocks

BYTES = 8  # of a mark

Marks = NDArray[np.uint64]


def marks_of_maps(
    new: Rows,
    ids: NDArray[Any],
    vectors: Float[Tensor, "items new_dim"],
    rows: Int[Tensor, " some"],
    modality: Int[Tensor, " items"] | None,
) -> tuple[Marks, ...]:
    """Marks of the items that each map was fitted on; none where items have no ids.

    Args:
        new: What the head is fitted on.
        ids: Of the items that both models have embedded.
        vectors: Their new vectors.
        rows: Of those that take part.
        modality: The number of each item's, if they are of several: each has a map of its own.
    """
    if not isinstance(new, Vectors):
        return ()
    taking_part = np.sort(rows.cpu().numpy())
    marks = np.stack([id_marks(ids), vector_marks(vectors)])
    if modality is None:
        return (np.unique(marks[:, taking_part]),)
    kinds = modality.numpy()
    return tuple(
        np.unique(marks[:, taking_part[kinds[taking_part] == kind]]) for kind in np.unique(kinds)
    )


def id_marks(ids: NDArray[Any]) -> Marks:
    """The mark of each id."""
    return _digests((str(item).encode(errors="surrogatepass") for item in ids.tolist()), b"id")


def vector_marks(vectors: Float[Tensor, "rows dim"]) -> Marks:
    """The mark of each vector in single precision, whatever zeros stand behind it.

    Example:
        >>> import torch
        >>> bool((vector_marks(torch.eye(2)) == vector_marks(torch.eye(2, 3))).all())
        True
    """
    found = []
    for _, block in blocks(vectors):
        rows = block.cpu().float().numpy().astype("<f4")
        found.append(_digests((row.tobytes().rstrip(b"\0") for row in rows), b"vector"))
    return np.concatenate(found)


def known_again(file: Vectors, marks: Iterable[Marks]) -> NDArray[np.bool_]:
    """Which items of a file have one of some marks: of their vector or, where it names, their id.

    Args:
        file: New vectors.
        marks: Of each map of a head.
    """
    known = np.concatenate(list(marks))
    found: NDArray[np.bool_] = np.isin(vector_marks(file.vectors), known)
    if not counts_rows(file.ids):
        found |= np.isin(id_marks(file.ids), known)
    return found


def counts_rows(ids: NDArray[Any]) -> bool:
    """Whether ids are whole numbers that follow one another: another file may have the same.

    Example:
        >>> counts_rows(np.array([3, 4, 5])), counts_rows(np.array([3, 5, 9]))
        (True, False)
    """
    return ids.dtype.kind == "i" and bool((np.diff(ids) == 1).all())


def with_fitted(file: Vectors, marks: tuple[Marks, ...]) -> Mapping[str, NDArray[Any]]:
    """The columns of a file, and one that tells which items a head was fitted on, if known.

    What an earlier head was fitted on stays marked.

    Args:
        file: New vectors that a head maps.
        marks: Of each of its maps; none where it is not known what they were fitted on.
    """
    if not marks:
        return file.columns
    before = file.columns.get(FITTED)
    if before is not None and before.dtype.kind != "b":
        raise DataError(
            f"wanted the column `{FITTED}` to tell by true or false which items a head was fitted "
            f"on, but the new vectors have one of {before.dtype}, beginning with "
            f"{before[:3].tolist()}. Rename it."
        )
    found = known_again(file, marks)
    return {**file.columns, FITTED: found if before is None else found | before}


def _digests(texts: Iterable[bytes], kind: bytes) -> Marks:
    """The mark of each text; the same text has another as another kind of thing."""
    joined = b"".join(blake2b(text, digest_size=BYTES, person=kind).digest() for text in texts)
    return np.frombuffer(joined, dtype="<u8").astype(np.uint64)
