"""What can be said of a faiss index before it is trusted.

Every opening of an index runs this in a new process, so it imports faiss and no more.
"""

from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

from nobackfill.errors import GalleryError
from nobackfill.gallery.stores.trial import DAMAGED

EXACT = ("IndexFlat", "IndexFlatIP", "IndexFlatL2")
KEEPING = (*EXACT, "IndexHNSWFlat", "IndexNSGFlat", "IndexIVFFlat", "IndexRefineFlat")
BY_PRECISION = ("IndexScalarQuantizer", "IndexIVFScalarQuantizer")


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
