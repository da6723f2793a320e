"""Builds an index of the new vectors, of the kind that the owner's vectors have."""

from collections.abc import Callable
from dataclasses import dataclass

from nobackfill.errors import GalleryError
from nobackfill.gallery.provenance import check_token, token_of
from nobackfill.gallery.routing import log
from nobackfill.gallery.stores.base import Store
from nobackfill.gallery.stores.client import check_exists


@dataclass(frozen=True)
class Indexing:
    """What was built, or would be."""

    collection: str  # of new vectors
    vectors: int  # number of its vectors
    kind: str | None  # of its index, as the database describes it; None for exact search
    to_do: int = 0  # number of vectors that had to be indexed
    by_itself: bool = False  # whether the database does it, so that there is nothing to build


def index_new(
    store: Store,
    collection: str,
    *,
    dry_run: bool = False,
    watch: Callable[[str], None] = lambda line: None,
) -> Indexing:
    """Builds the owner's index on new vectors, unless it exists; restarts an interrupted build.

    Args:
        store: Gallery; the owner's collection is only read.
        collection: Collection of new vectors.
        dry_run: Whether nothing is built.
        watch: Callback that receives progress messages.
    """
    check_exists(store, collection, "index")
    target, number = store.wanted_index(collection), store.count(collection)
    if target is None:
        index = store.index_of(collection)
        return Indexing(collection, number, None if index is None else index.kind, by_itself=True)
    if not number:
        raise GalleryError(f"Nothing to index: `{collection}` has none. Backfill first.")
    if target.lacks and not dry_run:
        token = token_of(store, collection)
        store.index(collection, watch=watch)

        def finish() -> None:
            if token is not None:
                check_token(store, collection, token)
            log(store, "index", collection=collection, kind=target.kind, vectors=target.lacks)

        store.exclusively("end the index", finish)
    return Indexing(collection, number, target.kind, target.lacks)
