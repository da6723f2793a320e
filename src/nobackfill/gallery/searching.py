"""Searches with many queries, block by block, so that progress can be shown."""

from nobackfill.core.steps import Step, Watch, unwatched
from nobackfill.gallery.stores.base import Matrix, SearchResults, Store

BLOCK = 1000  # queries of one search


def searched(
    store: Store,
    collection: str,
    query: Matrix,
    k: int,
    *,
    watch: Watch = unwatched,
    name: str = "queries",
) -> SearchResults:
    """Searches a collection block by block; `watch` receives the number of queries."""
    ids, cosines = list[list[str]](), list[list[float]]()
    for first in range(0, len(query), BLOCK):
        watch(Step(f"searching with {name}", first, len(query), "queries"))
        part = store.search(collection, query[first : first + BLOCK], k)
        ids += part.ids
        cosines += part.cosines
    return SearchResults(ids, cosines)
