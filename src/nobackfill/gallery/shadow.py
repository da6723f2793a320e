"""Compares old and new queries without labels: what would change if the new model were served."""

from dataclasses import dataclass

import numpy as np

from nobackfill.core.steps import Watch, unwatched
from nobackfill.gallery.searching import searched
from nobackfill.gallery.stores.base import Matrix, SearchResults, Store, unit

PAGE = 4096


@dataclass(frozen=True)
class Shadow:
    """How the results of the new model's queries differ from those of the old model's."""

    queries: int  # number of queries
    k: int  # number of results of each query
    overlap: float  # mean share of the `k` results that both models have
    first_changed: float  # share of queries whose first result differs
    score_shift: float  # mean increase of the cosine of the first result
    old_recall: float  # share of the exact results that the database returns, for old queries
    new_recall: float  # the same for new queries


def compare_queries(
    store: Store,
    collection: str,
    old_query: Matrix,
    new_query: Matrix,
    k: int,
    *,
    watch: Watch = unwatched,
) -> Shadow:
    """Searches a collection with the same queries by the served and by the new model.

    `watch` receives each step.
    """
    old, new = (
        searched(store, collection, query, k, watch=watch, name=name)
        for name, query in (("old queries", old_query), ("new queries", new_query))
    )
    old_recall = new_recall = 1.0
    if not store.exact:
        watch("comparing all vectors with old queries")
        old_recall = overlap(old, exactly(store, collection, old_query, k))
        watch("comparing all vectors with new queries")
        new_recall = overlap(new, exactly(store, collection, new_query, k))
    firsts = [(a[:1], b[:1]) for a, b in zip(old.ids, new.ids, strict=True) if a or b]
    changed = [before != after for before, after in firsts]
    cosines = zip(old.cosines, new.cosines, strict=True)
    shifts = [after[0] - before[0] for before, after in cosines if before and after]
    return Shadow(
        queries=len(old_query),
        k=k,
        overlap=overlap(old, new),
        first_changed=float(np.mean(changed)) if changed else 0.0,
        score_shift=float(np.mean(shifts)) if shifts else 0.0,
        old_recall=old_recall,
        new_recall=new_recall,
    )


def overlap(results: SearchResults, reference: SearchResults) -> float:
    """Returns the mean share of the reference's results that are also in `results`.

    Example:
        >>> results = SearchResults([["a", "b"]], [[1.0, 0.5]])
        >>> overlap(results, SearchResults([["b", "c"]], [[1.0, 0.5]]))
        0.5
    """
    pairs = zip(results.ids, reference.ids, strict=True)
    shares = [len(set(ids) & set(others)) / len(others) for ids, others in pairs if others]
    return float(np.mean(shares)) if shares else 1.0


def exactly(store: Store, collection: str, query: Matrix, k: int) -> SearchResults:
    """Returns the results of a search that compares every vector, page by page."""
    queries = unit(query)
    best: list[list[tuple[str, float]]] = [[] for _ in query]
    for rows in store.pages(collection, limit=PAGE):
        cosines = queries @ unit(rows.vectors).T
        for row, scores in enumerate(cosines):
            top = np.argpartition(-scores, min(k, len(scores)) - 1)[:k]
            both = best[row] + [(rows.ids[place], float(scores[place])) for place in top]
            best[row] = sorted(both, key=lambda item: -item[1])[:k]
    return SearchResults.of(best)
