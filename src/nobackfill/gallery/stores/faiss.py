"""Galleries in faiss index files."""

from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

from nobackfill.errors import GalleryError
from nobackfill.gallery.stores.base import Matrix
from nobackfill.gallery.stores.index_file import IndexFile
from nobackfill.gallery.stores.trial import DAMAGED, try_first
from nobackfill.gallery.stores.uri import Uri

EXACT = ("IndexFlat", "IndexFlatIP", "IndexFlatL2")
KEEPING = (*EXACT, "IndexHNSWFlat", "IndexNSGFlat", "IndexIVFFlat", "IndexRefineFlat")
BY_PRECISION = ("IndexScalarQuantizer", "IndexIVFScalarQuantizer")
HASHTABLE = 2  # faiss.DirectMap.Hashtable: for ids that are not positions
NO_COSINES = ("IndexLSH",)  # its distances are between bit codes


class FaissStore(IndexFile):
    """A memory-mapped faiss index; items without ids are named by their positions.

    Args:
        uri: URI such as `faiss://gallery.faiss`, of a file written by `faiss.write_index`.
        read_only: Whether every write is refused.
    """

    def __init__(self, uri: Uri, *, read_only: bool):
        super().__init__(uri, read_only=read_only)
        try_first("faiss", uri.path)
        self._index = open_index(uri.path)
        self._base = base_of(self._index)
        self._metric, kind = self._index.metric_type, type(self._base).__name__
        ids, self._keys = ids_of(self._index, self._base)
        self.describe(
            ids.tolist(), self._index.d, kind=kind, keeps_vectors=keeps_vectors(self._base)
        )
        self.exact = kind in EXACT
        self._mapped = not isinstance(self._base, faiss.IndexIVF)  # whether ids can be looked up

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
                f"Cannot check whether the vectors of {self.shown} have unit length: {self.kind} "
                f"does not return vectors. Build an index that does, such as IDMap,Flat."
            ) from error
        return rows

    def nearest(self, query: Matrix, k: int) -> tuple[list[list[int]], list[list[float]]]:
        """See `IndexFile`."""
        score, ids = self._index.search(query, k)
        cosine = score if self._metric == faiss.METRIC_INNER_PRODUCT else 1 - score / 2
        valid = ids >= 0  # an index may return fewer than k
        return (
            [row[mask].tolist() for row, mask in zip(ids, valid, strict=True)],
            [row[mask].tolist() for row, mask in zip(cosine, valid, strict=True)],
        )

    def metric_of_units(self) -> str | None:
        """See `IndexFile`."""
        names = {faiss.METRIC_INNER_PRODUCT: "inner product", faiss.METRIC_L2: "squared distance"}
        if self._metric not in names or self.kind in NO_COSINES:
            raise GalleryError(
                f"Cannot compute cosines: {self.shown} ({self.kind}) has another metric. Build an "
                f"index of inner products over vectors of unit length."
            )
        return names[self._metric]


def open_index(path: str) -> Any:
    """Opens an index, memory-mapped where faiss supports it."""
    try:
        return faiss.read_index(path, faiss.IO_FLAG_MMAP_IFC)
    except RuntimeError as error:
        reason = " ".join(str(error).split())[:300]
        raise GalleryError(
            f"Cannot read {path} as an index written by `faiss.write_index`: {reason}. {DAMAGED}"
        ) from None


def base_of(index: Any) -> Any:
    """Returns the index inside an IDMap, or the index itself."""
    is_map = isinstance(index, (faiss.IndexIDMap, faiss.IndexIDMap2))
    return faiss.downcast_index(index.index) if is_map else index


def try_index(path: str) -> None:
    """Opens, checks and searches an index; see `try_first`."""
    index = open_index(path)
    base = base_of(index)
    whole = index.d == base.d and index.ntotal == base.ntotal and 0 < index.d < 2**24
    if base is not index:
        whole = whole and index.id_map.size() == index.ntotal
    if not (whole and _has_all(base)):
        raise GalleryError(f"{path} has other numbers of vectors than it says. {DAMAGED}")
    ids_of(index, base)
    query = np.eye(1, index.d, dtype=np.float32)
    index.search(query, int(min(index.ntotal, 10)) or 1)
    if keeps_vectors(base) and index.ntotal and not isinstance(base, faiss.IndexIVF):
        base.reconstruct_batch(np.array([0, index.ntotal - 1]))


def _has_all(base: Any) -> bool:
    """Whether an index contains as many codes, links and cells as its header states."""
    if isinstance(base, faiss.IndexFlatCodes):
        return bool(base.codes.size() == base.ntotal * base.code_size)
    if isinstance(base, faiss.IndexHNSW):
        graph: Any = base.hnsw
        storage = faiss.downcast_index(base.storage)
        levels, offsets = (faiss.vector_to_array(v) for v in (graph.levels, graph.offsets))
        links = faiss.vector_to_array(graph.neighbors)
        return bool(
            (storage.d, storage.ntotal, len(levels)) == (base.d, base.ntotal, base.ntotal)
            and _has_all(storage)
            and len(offsets) == base.ntotal + 1
            and (np.diff(offsets.astype(np.int64)) >= 0).all()
            and int(offsets[-1]) == len(links)
            and ((links >= -1) & (links < base.ntotal)).all()
            and -1 <= graph.entry_point < base.ntotal
        )
    if isinstance(base, faiss.IndexIVF):
        cells: Any = base.invlists
        sizes = [cells.list_size(cell) for cell in range(cells.nlist)]
        coarse = faiss.downcast_index(base.quantizer)
        return bool(
            (cells.nlist, cells.code_size) == (base.nlist, base.code_size)
            and sum(sizes) == base.ntotal
            and (coarse.d, coarse.ntotal) == (base.d, base.nlist)
            and _has_all(coarse)
        )
    return True


def keeps_vectors(base: Any) -> bool:
    """Whether an index stores its vectors in half precision or better."""
    kind = type(base).__name__
    half = (faiss.ScalarQuantizer.QT_fp16, faiss.ScalarQuantizer.QT_bf16)
    return kind in KEEPING or (kind in BY_PRECISION and base.sq.qtype in half)


def ids_of(index: Any, base: Any) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Returns the ids in the order of an index, and the keys of its base (inside an IDMap)."""
    places = np.arange(index.ntotal, dtype=np.int64)
    if base is not index:
        return faiss.vector_to_array(index.id_map), places
    if not isinstance(base, faiss.IndexIVF):
        return places, places
    lists: Any = base.invlists
    ids = [
        faiss.rev_swig_ptr(lists.get_ids(cell), lists.list_size(cell)).copy()
        for cell in range(lists.nlist)
        if lists.list_size(cell)
    ]
    stored = np.concatenate(ids) if ids else places
    return stored, stored
