"""Galleries in USearch index files."""

import numpy as np
from numpy.typing import NDArray
from usearch.compiled import MetricKind, ScalarKind

from nobackfill.errors import GalleryError
from nobackfill.gallery.stores.base import Matrix, as_matrix
from nobackfill.gallery.stores.client import cosines_from
from nobackfill.gallery.stores.index_file import IndexFile
from nobackfill.gallery.stores.trial import try_first
from nobackfill.gallery.stores.uri import Uri
from nobackfill.gallery.stores.usearch_trial import open_index

PRECISE = (ScalarKind.F64, ScalarKind.F32, ScalarKind.F16, ScalarKind.BF16)
METRICS = {
    MetricKind.Cos: None,
    MetricKind.IP: "inner product",
    MetricKind.L2sq: "squared distance",
}
EXPANSION = 128  # candidates of a search; the default of USearch is 64


class UsearchStore(IndexFile):
    """A memory-mapped USearch index, searched by its graph; ids are its keys, ascending.

    Args:
        uri: URI such as `usearch://gallery.usearch`, of a file written by `Index.save`.
        read_only: Whether every write is refused.
    """

    exact = False

    def __init__(self, uri: Uri, *, read_only: bool):
        super().__init__(uri, read_only=read_only)
        try_first("usearch", uri.path)
        self._index = open_index(uri.path)
        if self._index.multi:
            raise GalleryError(
                f"{self.shown} was built with `multi=True`, but each id must have one vector. "
                f"Build it with every key once."
            )
        self._keys = np.sort(self._index.keys[0 : len(self._index)]).astype(np.uint64)
        kind = f"USearch in {self._index.dtype.name}"
        keeps_vectors = self._index.dtype in PRECISE
        self.describe(self._keys.tolist(), self._index.ndim, kind=kind, keeps_vectors=keeps_vectors)

    def first_after(self, after: str) -> int:
        """See `FileStore`; the key may have been removed meanwhile."""
        if not (after.isascii() and after.isdecimal() and int(after) < 2**64):
            return super().first_after(after)
        return int(np.searchsorted(self._keys, np.uint64(int(after)), side="right"))

    def reconstruct(self, places: NDArray[np.int64]) -> Matrix:
        """See `IndexFile`."""
        return as_matrix(self._index.get(self._keys[places]), self._index.ndim)

    def nearest(self, query: Matrix, k: int) -> tuple[list[list[int]], list[list[float]]]:
        """See `IndexFile`."""
        self._index.expansion_search = max(EXPANSION, k)
        matches = self._index.search(query, k)
        keys = matches.keys.reshape(len(query), -1)
        distance = matches.distances.reshape(len(query), -1)
        counts = matches.counts.tolist() if len(query) > 1 else [len(matches)]
        return (
            [row[:count].tolist() for row, count in zip(keys, counts, strict=True)],
            [self._cosines(row[:count]) for row, count in zip(distance, counts, strict=True)],
        )

    def _cosines(self, distances: Matrix) -> list[float]:
        if self._index.metric_kind == MetricKind.L2sq:
            return cosines_from(distances.tolist(), squared_distances=True)
        return [1 - distance for distance in distances.tolist()]

    def metric_of_units(self) -> str | None:
        """See `IndexFile`."""
        metric = self._index.metric_kind
        if metric not in METRICS:
            raise GalleryError(
                f"Cannot compute cosines: {self.shown} is searched by {metric.name}. Build it with "
                f'`metric="cos"`.'
            )
        return METRICS[metric]
