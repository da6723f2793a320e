"""Removes new vectors, or the old ones once nothing needs them."""

from nobackfill.errors import GalleryError
from nobackfill.gallery.provenance import space_key
from nobackfill.gallery.routing import check_served, current, logged
from nobackfill.gallery.sketch import sketch_key
from nobackfill.gallery.stores.base import Store


def remove_new(store: Store, collection: str, *, dry_run: bool = False) -> int:
    """Removes a collection of new vectors unless it is served; returns its number of vectors.

    A backfill that writes it stops at its next batch.
    """
    if not dry_run:
        store.check_writable(collection)
    if not store.exists(collection) and store.read_note(space_key(collection)) is None:
        return 0

    def remove() -> int:
        if current(store).collection == collection:
            raise GalleryError(
                f"Cannot remove `{collection}`: it is served. Go back first with `nobackfill "
                f"gallery rollback`."
            )
        number = store.count(collection) if store.exists(collection) else 0
        if not dry_run:
            store.note(space_key(collection), None)  # first, where there are no transactions
            store.note(sketch_key(collection), None)
            with logged(store, "clean", collection=collection, removed=number):
                store.drop(collection)
        return number

    return remove() if dry_run else store.exclusively(f"remove `{collection}`", remove)


def retire_old(store: Store, collection: str, *, confirm: str | None, dry_run: bool = False) -> int:
    """Removes the owner's old vectors if each has a new one that is served; returns their number.

    Args:
        store: Gallery.
        collection: Collection of new vectors.
        confirm: Name of the owner's collection, as typed by a person.
        dry_run: Whether nothing is removed.
    """

    def retire() -> int:
        served = current(store)
        if served.collection != collection:
            raise GalleryError(
                f"Cannot remove the old vectors while `{served.collection}` is served. Switch to "
                f"`{collection}` first."
            )
        check_served(store, served)
        if not store.exists(store.main):
            raise GalleryError(
                f"Nothing to remove: the old vectors of `{store.main}` were removed before."
            )
        store.check_is_covered(collection)
        number = store.count(store.main)
        if dry_run:
            return number
        if confirm != store.main:
            raise GalleryError(
                f"This removes the {number:,} old vectors of `{store.main}` for good. Pass "
                f"--confirm {store.main} to confirm."
            )
        with logged(store, "retire", collection=store.main, removed=number):
            store.retire(collection)  # counts again, right before
        return number

    return retire() if dry_run else store.exclusively("remove the old vectors", retire, retry=False)
