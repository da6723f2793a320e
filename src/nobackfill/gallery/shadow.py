"""Old and new side by side on queries that nobody has labelled: what would change?"""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from nobackfill.gallery.stores.base import Found, Matrix, Store, unit

PAGE = 4096


@dataclass(frozen=True)
class Shadow:
    """What queries find with the old and with the new model.

    Attributes:
        queries: How many.
        k: How many items each found.
        overlap: The mean share of the `k` that both found.
        first_changed: The share of queries whose first answer is another.
        score_shift: By how much the cosine of the first answer rises, on average.
        old_recall: Of what an exact search finds, the share that the database finds, old queries.
        new_recall: The same with new queries.
    """

    queries: int
    k: int
    overlap: float
    first_changed: float
    score_shift: float
    old_recall: float
    new_recall: float

    def summary(self) -> dict[str, Any]:
        """As it goes into JSON."""
        return asdict(self)


def compare_queries(
    store: Store, collection: str, old_query: Matrix, new_query: Matrix, k: int
) -> Shadow:
    """Asks a collection with the queries of both models; nothing is written.

    Args:
        store: Where it is.
        collection: What is asked.
        old_query: By the model that is served.
        new_query: The same queries by the one that may be.
        k: How many items to find.
    """
    old, new = (store.search(collection, query, k) for query in (old_query, new_query))
    recalls = [1.0, 1.0]
    if not store.exact:
        exact = [exactly(store, collection, query, k) for query in (old_query, new_query)]
        recalls = [overlap(one, other) for one, other in zip((old, new), exact, strict=True)]
    first = [
        (one[:1], other[:1]) for one, other in zip(old.ids, new.ids, strict=True) if one or other
    ]
    shifts = [
        other[0] - one[0]
        for one, other in zip(old.cosines, new.cosines, strict=True)
        if one and other
    ]
    return Shadow(
        queries=len(old_query),
        k=k,
        overlap=overlap(old, new),
        first_changed=float(np.mean([one != other for one, other in first])) if first else 0.0,
        score_shift=float(np.mean(shifts)) if shifts else 0.0,
        old_recall=recalls[0],
        new_recall=recalls[1],
    )


def overlap(one: Found, other: Found) -> float:
    """The mean share of what `other` found that `one` found too.

    Example:
        >>> overlap(Found([["a", "b"]], [[1.0, 0.5]]), Found([["b", "c"]], [[1.0, 0.5]]))
        0.5
    """
    shares = [len(set(a) & set(b)) / len(b) for a, b in zip(one.ids, other.ids, strict=True) if b]
    return float(np.mean(shares)) if shares else 1.0


def exactly(store: Store, collection: str, query: Matrix, k: int) -> Found:
    """What a search of every vector finds, read page by page."""
    asking = unit(query)
    best: list[list[tuple[float, str]]] = [[] for _ in query]
    after = None
    while (rows := store.scan(collection, after=after, limit=PAGE)).ids:
        cosines = asking @ unit(rows.vectors).T
        for row, scores in enumerate(cosines):
            few = np.argpartition(-scores, min(k, len(scores)) - 1)[:k]
            both = best[row] + [(float(scores[place]), rows.ids[place]) for place in few]
            best[row] = sorted(both, key=lambda one: -one[0])[:k]
        after = rows.ids[-1]
    return Found([[name for _, name in row] for row in best], [[s for s, _ in row] for row in best])
