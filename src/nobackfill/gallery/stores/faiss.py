"""Galleries in faiss index files."""

import faiss
import numpy as np
from numpy.typing import NDArray

from nobackfill.errors import GalleryError
from nobackfill.gallery.stores.base import Matrix
from nobackfill.gallery.stores.faiss_trial import EXACT, base_of, ids_of, keeps_vectors, open_index
from nobackfill.gallery.stores.index_file import IndexFile
from nobackfill.gallery.stores.trial import try_first
from nobackfill.gallery.stores.uri import Uri

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
