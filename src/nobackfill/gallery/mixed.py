"""Searches a gallery that is part old, part new, and merges both halves into one ranking."""

from collections.abc import Sequence

from nobackfill.core.page import Readable
from nobackfill.errors import ConfigError, GalleryError
from nobackfill.evaluation.score_scale import Scale
from nobackfill.gallery.status import share_of
from nobackfill.gallery.stores.base import Matrix, SearchResults, Store, unit

SAMPLE = 1000  # stored vectors with which the scores of unrelated pairs are measured

Ranking = list[tuple[str, float]]  # ids and cosines, best first


class MixedGallery(Readable):
    """Searches the owner's collection and the new one next to it as one gallery.

    An item belongs to the new half once it has a new vector, and then no longer to the old half;
    items that the owner has removed belong to neither. If both halves are of one space, their
    cosines are compared as they are. Otherwise each half is searched with its own query, and its
    cosines count in deviations from those of unrelated pairs (`calibrate`).

    Args:
        store: Gallery with both collections.
        new: Name of the collection of new vectors.
        same_space: Whether one query vector searches both halves.
    """

    def __init__(self, store: Store, new: str, *, same_space: bool):
        self.store, self.new, self.same_space = store, new, same_space
        self.scales = (Scale(), Scale()) if same_space else None

    def __repr__(self) -> str:
        scores = "as they are" if self.same_space else "in deviations from unrelated pairs"
        return f"MixedGallery({self.store!r}, new half {self.new!r}, scores {scores})"

    def share(self) -> float:
        """Share of the gallery that is in the new half."""
        return share_of(self.store, self.new)

    def calibrate(self, query: Matrix, query_new: Matrix) -> None:
        """Measures the cosines of unrelated pairs in both halves.

        Args:
            query: Sample of queries for the old half.
            query_new: The same queries for the new half.
        """
        scales = []
        for collection, queries in ((self.store.main, query), (self.new, query_new)):
            stored = self.store.scan(collection, limit=SAMPLE).vectors
            scales.append(Scale.of(unit(queries) @ unit(stored).T) if len(stored) else Scale())
        self.scales = scales[0], scales[1]

    def search(self, query: Matrix, k: int, *, query_new: Matrix | None = None) -> SearchResults:
        """Returns the best items of both halves.

        Args:
            query: Queries for the old half.
            k: Number of items.
            query_new: Queries for the new half; None if both are of one space.
        """
        if k < 1:
            raise ConfigError(f"k must be at least one, but is {k}.")
        if self.same_space == (query_new is not None):
            raise ConfigError(
                "Pass one query for both halves if they are of one space, and otherwise one for "
                "each half."
            )
        if self.scales is None:
            raise GalleryError(
                "Scores of two spaces cannot be compared yet: the scores of unrelated pairs were "
                "not measured. Call `calibrate` with some queries first."
            )
        old = self._half(self.store.main, query, k)
        new = self._half(self.new, query if query_new is None else query_new, k)
        rankings = zip(old, new, strict=True)
        return SearchResults.of(
            merge(of_old, of_new, self.scales, k) for of_old, of_new in rankings
        )

    def _half(self, collection: str, query: Matrix, k: int) -> list[Ranking]:
        """Returns the best items of one half; searches deeper until each query has `k`."""
        is_new = collection == self.new
        total, depth = self.store.count(collection), k
        while True:
            depth = min(depth, total)
            if depth == 0:
                return [[] for _ in query]
            results = self.store.search(collection, query, depth)

            # Old vectors count if there is no new one, and new vectors if the item still exists.
            ids = list({id for row in results.ids for id in row})
            present = self.store.contained(self.store.main if is_new else self.new, ids)
            kept = [
                [(id, cosine) for id, cosine in row if (id in present) == is_new]
                for row in results.pairs()
            ]
            if depth >= total or all(len(row) >= k for row in kept):
                return kept
            depth *= 4


def merge(
    old: Sequence[tuple[str, float]],
    new: Sequence[tuple[str, float]],
    scales: tuple[Scale, Scale],
    k: int,
) -> Ranking:
    """Merges two rankings by comparable scores; old items come first among equal ones.

    Example:
        >>> merge([("a", 0.9), ("b", 0.5)], [("c", 0.7)], (Scale(), Scale()), 2)
        [('a', 0.9), ('c', 0.7)]
    """
    both = [
        (id, scale(cosine))
        for half, scale in zip((old, new), scales, strict=True)
        for id, cosine in half
    ]
    return sorted(both, key=lambda item: -item[1])[:k]
