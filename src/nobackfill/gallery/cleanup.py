"""Removes new vectors, or the old ones once nothing needs them."""

from nobackfill.errors import GalleryError
from nobackfill.gallery.provenance import space_key
from nobackfill.gallery.routing import current, log
from nobackfill.gallery.sketch import sketch_key
from nobackfill.gallery.stores.base import Store


def remove_new(store: Store, collection: str, *, dry_run: bool = False) -> int:
    """Removes a collection of new vectors unless it is served; returns its number of vectors."""
    if not store.exists(collection):
        return 0
    if current(store).collection == collection:
        raise GalleryError(
            f"Cannot remove `{collection}`: it is served. Go back first with `nobackfill gallery "
            f"rollback`."
        )
    number = store.count(collection)
    if not dry_run:
        store.drop(collection)
        for key in (space_key(collection), sketch_key(collection)):
            store.note(key, None)
        log(store, "clean", collection=collection, removed=number)
    return number


def retire_old(store: Store, collection: str, *, confirm: str | None, dry_run: bool = False) -> int:
    """Removes the owner's old vectors if each has a new one that is served; returns their number.

    Args:
        store: Gallery.
        collection: Collection of new vectors.
        confirm: Name of the owner's collection, as typed by a person.
        dry_run: Whether nothing is removed.
    """
    served = current(store).collection
    if served != collection:
        raise GalleryError(
            f"Cannot remove the old vectors while `{served}` is served. Switch to `{collection}` "
            f"first."
        )
    missing = store.count(store.main) - store.covered(collection)
    if missing:
        raise GalleryError(
            f"Cannot remove the old vectors: every item must have a new one, but {missing:,} have "
            f"none. Finish the backfill first."
        )
    number = store.count(store.main)
    if dry_run:
        return number
    if confirm != store.main:
        raise GalleryError(
            f"This removes the {number:,} old vectors of `{store.main}` for good. Pass --confirm "
            f"{store.main} to confirm."
        )
    log(store, "retire", collection=store.main, removed=number)  # before it cannot be undone
    store.retire()
    return number
