"""A gallery in an index file of faiss."""

from pathlib import Path
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

from nobackfill.errors import GalleryError
from nobackfill.gallery.stores.base import Matrix
from nobackfill.gallery.stores.index_file import IndexFile
from nobackfill.gallery.stores.uri import Uri, check_options

EXACT = ("IndexFlat", "IndexFlatIP", "IndexFlatL2")
KEEPING = (*EXACT, "IndexHNSWFlat", "IndexNSGFlat", "IndexIVFFlat", "IndexRefineFlat")
BY_PRECISION = ("IndexScalarQuantizer", "IndexIVFScalarQuantizer")
HASHTABLE = 2  # faiss.DirectMap.Hashtable: for ids that are no positions
NO_COSINES = ("IndexLSH",)  # its distances are of bits


class FaissStore(IndexFile):
    """An index of faiss, memory-mapped; ids are its own, or positions where it has none.

    Args:
        uri: Such as `faiss://gallery.faiss`, as `faiss.write_index` wrote it.
        read_only: Whether every write is refused.
    """

    def __init__(self, uri: Uri, *, read_only: bool = False):
        check_options(uri)
        super().__init__(Path(uri.path), uri.shown, read_only=read_only)
        self._index = open_index(uri.path)
        wrapped = isinstance(self._index, (faiss.IndexIDMap, faiss.IndexIDMap2))
        self._base: Any = faiss.downcast_index(self._index.index) if wrapped else self._index
        self._metric, kind = self._index.metric_type, type(self._base).__name__
        ids, self._keys = ids_of(self._index, self._base)
        self.describe(
            ids.tolist(), self._index.d, kind=kind, keeps_vectors=keeps_vectors(self._base)
        )
        self.exact = kind in EXACT
        self._mapped = not isinstance(self._base, faiss.IndexIVF)  # whether ids lead to vectors

    def reconstruct(self, places: NDArray[np.int64]) -> Matrix:
        """See `IndexFile`."""
        if len(places) == 0:
            return np.empty((0, self._index.d), dtype=np.float32)
        if not self._mapped:
            self._base.set_direct_map_type(HASHTABLE)
            self._mapped = True
        try:
            rows: Matrix = self._base.reconstruct_batch(self._keys[places])
        except RuntimeError as error:
            raise GalleryError(
                f"wanted some vectors of {self.shown} to see whether they are of unit length, but "
                f"{self.kind} gives none back. Build an index that does, such as IDMap,Flat."
            ) from error
        return rows

    def nearest(self, query: Matrix, k: int) -> tuple[list[list[int]], list[list[float]]]:
        """See `IndexFile`."""
        self._check_cosines()
        score, found = self._index.search(query, k)
        cosine = score if self._metric == faiss.METRIC_INNER_PRODUCT else 1 - score / 2
        there = found >= 0  # an index may find fewer
        return (
            [row[mask].tolist() for row, mask in zip(found, there, strict=True)],
            [row[mask].tolist() for row, mask in zip(cosine, there, strict=True)],
        )

    def _check_cosines(self) -> None:
        """Refuses, once, an index whose scores tell no cosines."""
        if hasattr(self, "_checked"):
            return
        names = {faiss.METRIC_INNER_PRODUCT: "inner product", faiss.METRIC_L2: "squared distance"}
        if self._metric not in names or self.kind in NO_COSINES:
            raise GalleryError(
                f"wanted cosines, but {self.shown} ({self.kind}) has another metric. Build an "
                f"index of inner products over vectors of unit length."
            )
        self.check_unit_length(names[self._metric])
        self._checked = True


def open_index(path: str) -> Any:
    """An index, of which the file is mapped rather than read where faiss can."""
    try:
        return faiss.read_index(path, faiss.IO_FLAG_MMAP_IFC)
    except RuntimeError as error:
        raise GalleryError(
            f"wanted an index at {path} as `faiss.write_index` writes it, but {error}."
        ) from None


def keeps_vectors(base: Any) -> bool:
    """Whether an index has its vectors as they came, but for half precision."""
    kind = type(base).__name__
    half = (faiss.ScalarQuantizer.QT_fp16, faiss.ScalarQuantizer.QT_bf16)
    return kind in KEEPING or (kind in BY_PRECISION and base.sq.qtype in half)


def ids_of(index: Any, base: Any) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The ids in the order of an index, and by which key its base knows each of them.

    Args:
        index: As it was read.
        base: What is in it, where it only gives ids to another; else itself.
    """
    places = np.arange(index.ntotal, dtype=np.int64)
    if base is not index:
        return faiss.vector_to_array(index.id_map), places
    if not isinstance(base, faiss.IndexIVF):
        return places, places
    lists: Any = base.invlists
    ids = [
        faiss.rev_swig_ptr(lists.get_ids(one), lists.list_size(one)).copy()
        for one in range(lists.nlist)
        if lists.list_size(one)
    ]
    stored = np.concatenate(ids) if ids else places
    return stored, stored
