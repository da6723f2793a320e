"""An index of the new vectors, of the kind that the owner's have."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from nobackfill.errors import GalleryError
from nobackfill.gallery.routing import log
from nobackfill.gallery.stores.base import Store


@dataclass(frozen=True)
class Indexing:
    """What is done, or would be.

    Attributes:
        collection: Of the new vectors.
        vectors: How many it has.
        kind: Of its index, as the database tells it; None where every vector is looked at.
        to_do: How many vectors had to be indexed.
        by_itself: Whether the database sees to it, so that there is nothing to build.
    """

    collection: str
    vectors: int
    kind: str | None
    to_do: int = 0
    by_itself: bool = False

    def summary(self) -> dict[str, Any]:
        """As it goes into JSON."""
        return asdict(self)


def index_new(
    store: Store,
    collection: str,
    *,
    dry_run: bool = False,
    watch: Callable[[str], None] = lambda line: None,
) -> Indexing:
    """Builds on new vectors the index that the owner's have; nothing where it is there.

    What the owner has is only looked at. A build that was stopped is begun again.

    Args:
        store: Where the gallery is.
        collection: Of the new vectors.
        dry_run: Whether to look only.
        watch: Is told how far it is.
    """
    if not store.exists(collection):
        raise GalleryError(
            f"wanted to index `{collection}`, but {store.shown} has no such collection. Backfill "
            f"it first."
        )
    wanted, number = store.wanted_index(collection), store.count(collection)
    if wanted is None:
        has = store.index_of(collection)
        return Indexing(collection, number, None if has is None else has.kind, by_itself=True)
    if not number:
        raise GalleryError(f"wanted vectors to index, but `{collection}` has none. Backfill first.")
    if wanted.lacks and not dry_run:
        store.index(collection, watch=watch)
        log(store, "index", collection=collection, kind=wanted.kind, vectors=wanted.lacks)
    return Indexing(collection, number, wanted.kind, wanted.lacks)
