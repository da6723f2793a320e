"""Taking back what we wrote, and taking away what is no longer needed."""

from nobackfill.errors import GalleryError
from nobackfill.gallery.backfill import pages
from nobackfill.gallery.provenance import space_key
from nobackfill.gallery.routing import current, log
from nobackfill.gallery.stores.base import Store


def remove_new(store: Store, collection: str, *, dry_run: bool = False) -> int:
    """Removes a collection of ours, unless it is served; returns how many vectors it had."""
    if not store.exists(collection):
        return 0
    if current(store).collection == collection:
        raise GalleryError(
            f"wanted to remove `{collection}`, but it is what is served. Go back first: "
            f"`nobackfill gallery rollback`."
        )
    number = store.count(collection)
    if not dry_run:
        store.drop(collection)
        store.note(space_key(collection), None)
        log(store, "clean", collection=collection, removed=number)
    return number


def retire_old(store: Store, collection: str, *, confirm: str | None, dry_run: bool = False) -> int:
    """Removes the owner's old vectors, once all of them have a new one that is served.

    Args:
        store: Where the gallery is.
        collection: Of the new vectors.
        confirm: The name of the owner's collection, as a person has typed it.
        dry_run: Whether to look only.

    Returns:
        How many old vectors there are, or were.
    """
    served = current(store).collection
    if served != collection:
        raise GalleryError(
            f"wanted the new vectors to be served before the old ones go, but `{served}` is. "
            f"Switch to `{collection}` first."
        )
    missing = sum(
        len(set(ids) - store.contained(collection, ids)) for ids in pages(store, store.main)
    )
    if missing:
        raise GalleryError(
            f"wanted a new vector of every item before the old ones go, but {missing:,} have none. "
            f"Finish the backfill first."
        )
    number = store.count(store.main)
    if dry_run:
        return number
    if confirm != store.main:
        raise GalleryError(
            f"wanted to hear that you mean it: this removes the {number:,} old vectors of "
            f"`{store.main}` for good. Pass --confirm {store.main}."
        )
    log(store, "retire", collection=store.main, removed=number)  # before, as there is no after
    store.retire()
    return number
