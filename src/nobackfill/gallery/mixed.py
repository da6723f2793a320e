"""A gallery that is part old, part new: both halves searched, one ranking."""

from collections.abc import Sequence

from nobackfill.errors import ConfigError, GalleryError
from nobackfill.evaluation.score_scale import Scale
from nobackfill.gallery.stores.base import Found, Matrix, Store, unit

SAMPLE = 1000  # stored vectors that tell what a stranger's score is


class MixedGallery:
    """Searches the owner's collection and the new one beside it as one gallery.

    An item is in the new half once it has a new vector there, and then no longer in the old one;
    items that their owner has removed are in neither. Where the two halves are of one space,
    cosines are compared as they are; else each half is asked with its own query, and its cosines
    count in deviations from those of strangers (`calibrate`).

    Args:
        store: Where both are.
        new: The collection of new vectors.
        same_space: Whether one query vector asks both.
    """

    def __init__(self, store: Store, new: str, *, same_space: bool):
        self.store, self.new, self.same_space = store, new, same_space
        self.scales = (Scale(), Scale()) if same_space else None

    def share(self) -> float:
        """How much of the gallery is in the new half."""
        return self.store.count(self.new) / max(self.store.count(self.store.main), 1)

    def calibrate(self, query: Matrix, query_new: Matrix) -> None:
        """Looks where the cosines of strangers lie, in both halves.

        Args:
            query: Some queries, as they ask the old half.
            query_new: The same, as they ask the new one.
        """
        halves = []
        for collection, asking in ((self.store.main, query), (self.new, query_new)):
            stored = self.store.scan(collection, limit=SAMPLE).vectors
            halves.append(Scale.of(unit(asking) @ unit(stored).T) if len(stored) else Scale())
        self.scales = halves[0], halves[1]

    def search(self, query: Matrix, k: int, *, query_new: Matrix | None = None) -> Found:
        """The best `k` of both halves.

        Args:
            query: As they ask the old half.
            k: How many.
            query_new: As they ask the new half; the same where both are of one space.
        """
        if k < 1:
            raise ConfigError(f"wanted to find at least one item, but k is {k}.")
        if self.same_space == (query_new is not None):
            raise ConfigError(
                "wanted one query for both halves where they are of one space, and one for each "
                "where they are not."
            )
        if self.scales is None:
            raise GalleryError(
                "wanted to compare the scores of two spaces, but nobody has looked where those of "
                "strangers lie. Call `calibrate` with some queries first."
            )
        old = self._old_half(query, k)
        new = self._new_half(query if query_new is None else query_new, k)
        merged = [
            merge(one, other, self.scales, k)
            for one, other in zip(_pairs(old), _pairs(new), strict=True)
        ]
        return Found(
            [[name for name, _ in row] for row in merged], [[c for _, c in r] for r in merged]
        )

    def _old_half(self, query: Matrix, k: int) -> Found:
        """The best of the items without a new vector: more are asked for until `k` are left."""
        total, wanted = self.store.count(self.store.main), k
        while True:
            wanted = min(wanted, total)
            found = self.store.search(self.store.main, query, wanted)
            names = list({name for row in found.ids for name in row})
            kept = _without(found, self.store.contained(self.new, names))
            if wanted >= total or all(len(row) >= k for row in kept.ids):
                return kept
            wanted *= 4

    def _new_half(self, query: Matrix, k: int) -> Found:
        """The best new vectors of items that are still there."""
        total, wanted = self.store.count(self.new), k
        while True:
            wanted = min(wanted, total)
            if wanted == 0:
                return Found([[] for _ in query], [[] for _ in query])
            found = self.store.search(self.new, query, wanted)
            names = list({name for row in found.ids for name in row})
            gone = set(names) - self.store.contained(self.store.main, names)
            kept = _without(found, gone)
            if wanted >= total or all(len(row) >= k for row in kept.ids):
                return kept
            wanted *= 4


def merge(
    old: Sequence[tuple[str, float]],
    new: Sequence[tuple[str, float]],
    scales: tuple[Scale, Scale],
    k: int,
) -> list[tuple[str, float]]:
    """One ranking of two, by scores that mean the same; old before new where they are equal.

    Example:
        >>> merge([("a", 0.9), ("b", 0.5)], [("c", 0.7)], (Scale(), Scale()), 2)
        [('a', 0.9), ('c', 0.7)]
    """
    both = [(name, scale(cosine)) for half, scale in zip((old, new), scales, strict=True)
            for name, cosine in half]  # fmt: skip
    return sorted(both, key=lambda one: -one[1])[:k]


def _without(found: Found, left_out: set[str]) -> Found:
    """What was found, but for some items."""
    kept = [
        [(name, cosine) for name, cosine in row if name not in left_out] for row in _pairs(found)
    ]
    return Found([[name for name, _ in row] for row in kept], [[c for _, c in r] for r in kept])


def _pairs(found: Found) -> list[list[tuple[str, float]]]:
    """Names with their cosines, query by query."""
    return [
        list(zip(names, cosines, strict=True))
        for names, cosines in zip(found.ids, found.cosines, strict=True)
    ]
