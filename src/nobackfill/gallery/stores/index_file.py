"""Base class of galleries in index files: ids, stored vectors, and search by cosine."""

from abc import abstractmethod
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from nobackfill.errors import GalleryError
from nobackfill.gallery.stores.base import Index, Matrix, Rows, SearchResults, as_matrix, unit
from nobackfill.gallery.stores.client import check_dim
from nobackfill.gallery.stores.flat import FileStore

SAMPLE = 100  # vectors whose lengths are checked
UNIT = 0.01  # largest deviation of a length from 1, with room for half precision
SHORTENED = 0.5  # smallest mean length of compressed unit vectors


class IndexFile(FileStore):
    """An index in a file. Subclasses call `describe` at the end of their constructor."""

    kind: str  # kind of index, for people
    keeps_vectors: bool  # whether it stores the vectors in half precision or better
    _checked = False

    def describe(self, ids: Sequence[int], dim: int, *, kind: str, keeps_vectors: bool) -> None:
        """Sets the properties of the index; raises if an id has several vectors."""
        self.ids = [str(id) for id in ids]
        self.main_dim, self.kind, self.keeps_vectors = dim, kind, keeps_vectors
        if len(set(self.ids)) < len(self.ids):
            raise GalleryError(
                f"{self.shown} has {len(self.ids)} vectors of {len(set(self.ids))} ids, but each "
                f"id must have one vector. Build the index with every id once."
            )

    @abstractmethod
    def reconstruct(self, places: NDArray[np.int64]) -> Matrix:
        """Returns the vectors at these positions, as exactly as the index stores them."""

    @abstractmethod
    def nearest(self, query: Matrix, k: int) -> tuple[list[list[int]], list[list[float]]]:
        """Returns ids and cosines of the neighbours of unit queries; `k` is at most the size."""

    @abstractmethod
    def metric_of_units(self) -> str | None:
        """Returns the metric if it gives cosines of unit vectors only; None if of all vectors.

        Raises if it gives no cosines.
        """

    def check_cosines(self) -> None:
        """Raises if the lengths of the vectors do not allow the metric to give cosines.

        Compression shortens vectors, so only the mean length of compressed vectors is checked.
        """
        metric = self.metric_of_units()
        if metric is None:
            return
        places = np.linspace(0, len(self.ids) - 1, min(SAMPLE, len(self.ids))).astype(np.int64)
        length = np.linalg.norm(self.reconstruct(places), axis=1)
        checked = length if self.keeps_vectors or not len(length) else length.mean(keepdims=True)
        lowest = 1 - UNIT if self.keeps_vectors else SHORTENED
        if ((checked < lowest) | (checked > 1 + UNIT)).any():
            raise GalleryError(
                f"Cannot compute cosines: {self.shown} is searched by {metric} over vectors of "
                f"lengths {length.min():.3g} to {length.max():.3g}. Divide the vectors by their "
                f"lengths and rebuild the index."
            )

    def has_exact_vectors(self) -> bool:
        """See `Store`."""
        return self.keeps_vectors

    def index_of(self, collection: str) -> Index | None:
        """See `Store`."""
        return None if super().index_of(collection) is None else Index(self.kind)

    def main_rows(self, places: Sequence[int]) -> Rows:
        """See `FileStore`; raises if the index compresses the vectors."""
        if not self.keeps_vectors:
            raise GalleryError(
                f"Cannot read the vectors of {self.shown}: the exact ones are not in the index: "
                f"{self.kind} compresses them. The index can be searched; for anything else open "
                f"the file of vectors that it was built from, as flat://FILE."
            )
        vectors = self.reconstruct(np.asarray(places, dtype=np.int64))
        return Rows([self.ids[place] for place in places], as_matrix(vectors, self.main_dim), {})

    def main_search(self, query: Matrix, k: int) -> SearchResults:
        """See `FileStore`."""
        check_dim(query, self.main_dim, self.main)
        k = min(k, len(self.ids))
        if k < 1 or len(query) == 0:
            return SearchResults.of([[] for _ in query])
        if not self._checked:
            self.check_cosines()
            self._checked = True
        ids, cosines = self.nearest(unit(query), k)
        return SearchResults([[str(id) for id in row] for row in ids], cosines)
