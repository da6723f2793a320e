"""What indexes in files share: ids, vectors where they are kept, and a search for cosines."""

from abc import abstractmethod
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from nobackfill.errors import GalleryError
from nobackfill.gallery.stores.base import Found, Index, Matrix, Rows, as_matrix, unit
from nobackfill.gallery.stores.client import check_dim
from nobackfill.gallery.stores.flat import FileStore

SAMPLE = 100  # vectors whose lengths are looked at
UNIT = 0.01  # how far from 1 a length may be; half precision moves it a little
SHORTENED = 0.5  # how short compression may make vectors of unit length in the mean


class IndexFile(FileStore):
    """An index in a file. Derived classes call `describe` at the end of their constructor.

    Attributes:
        kind: What it is, for people.
        keeps_vectors: Whether the vectors are in it as its owner gave them, but for half precision.
    """

    kind: str
    keeps_vectors: bool

    def describe(self, ids: Sequence[int], dim: int, *, kind: str, keeps_vectors: bool) -> None:
        """Tells what has been opened.

        Args:
            ids: In the order of `scan`.
            dim: Of the vectors.
            kind: See the attributes.
            keeps_vectors: See the attributes.
        """
        self._ids = [str(one) for one in ids]
        self._dim, self.kind, self.keeps_vectors = dim, kind, keeps_vectors
        if len(set(self._ids)) < len(self._ids):
            raise GalleryError(
                f"wanted one vector for each id, but {self.shown} has {len(self._ids)} vectors of "
                f"{len(set(self._ids))} ids. Build the index with every id once."
            )

    @abstractmethod
    def reconstruct(self, places: NDArray[np.int64]) -> Matrix:
        """The vectors at some places, as well as the index can tell."""

    @abstractmethod
    def nearest(self, query: Matrix, k: int) -> tuple[list[list[int]], list[list[float]]]:
        """The ids nearest to queries of unit length, and their cosines; `k` is at most the size."""

    def check_unit_length(self, metric: str) -> None:
        """Refuses a metric that tells no cosines of vectors of such lengths.

        Of compressed vectors only the mean length is asked, which compression makes smaller.

        Args:
            metric: Its name, for people.
        """
        some = np.linspace(0, len(self._ids) - 1, min(SAMPLE, len(self._ids))).astype(np.int64)
        length = np.linalg.norm(self.reconstruct(some), axis=1)
        asked = length if self.keeps_vectors or not len(length) else length.mean(keepdims=True)
        lowest = 1 - UNIT if self.keeps_vectors else SHORTENED
        if ((asked < lowest) | (asked > 1 + UNIT)).any():
            raise GalleryError(
                f"wanted cosines, but {self.shown} is searched by {metric} over vectors of lengths "
                f"{length.min():.3g} to {length.max():.3g}. Divide the vectors by their lengths "
                f"and build the index anew."
            )

    def index_of(self, collection: str) -> Index | None:
        """See `Store`."""
        return None if super().index_of(collection) is None else Index(self.kind)

    def main_ids(self) -> Sequence[str]:
        """See `FileStore`."""
        return self._ids

    def main_dim(self) -> int:
        """See `FileStore`."""
        return self._dim

    def main_rows(self, places: Sequence[int]) -> Rows:
        """See `FileStore`; refused where the index has compressed the vectors."""
        if not self.keeps_vectors:
            raise GalleryError(
                f"wanted the vectors of {self.shown}, but the exact ones are not in the index: "
                f"{self.kind} compresses them. It can be searched; for all else give the file of "
                f"vectors that it was built from, as flat://FILE."
            )
        vectors = self.reconstruct(np.asarray(places, dtype=np.int64))
        return Rows([self._ids[place] for place in places], as_matrix(vectors, self._dim), {})

    def main_search(self, query: Matrix, k: int) -> Found:
        """See `FileStore`."""
        check_dim(query, self._dim, self.main)
        k = min(k, len(self._ids))
        if k < 1 or len(query) == 0:
            return Found([[] for _ in query], [[] for _ in query])
        found, cosines = self.nearest(unit(query), k)
        return Found([[str(one) for one in row] for row in found], cosines)
