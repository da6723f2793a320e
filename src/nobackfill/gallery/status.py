"""The state of a gallery: its collections, their models, what is served, and the backfill."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from nobackfill.errors import DataError, GalleryError
from nobackfill.gallery.provenance import SPACE, declared
from nobackfill.gallery.routing import Route, check_served, current
from nobackfill.gallery.sketch import why_not_for
from nobackfill.gallery.stores.base import MARK, PAGE, Store
from nobackfill.gallery.stores.client import check_exists, split


@dataclass(frozen=True)
class CollectionStatus:
    """The state of a collection."""

    name: str
    items: int  # number of items
    dim: int  # number of dimensions of its vectors
    space: str | None  # fingerprint of its model; None where nothing declares it
    share: float  # share of the owner's collection that it covers
    index: str | None  # kind of its index; None for exact search
    problem: str | None = None  # why its vectors do not belong to the owner's present vectors


@dataclass(frozen=True)
class Status:
    """A gallery."""

    where: str  # URI without credentials
    collections: tuple[CollectionStatus, ...]  # the owner's first
    route: Route  # what is served
    problem: str | None = None  # why what is served is not what was switched to


def status_of(store: Store) -> Status:
    """Returns the state of a gallery; writes nothing."""
    keys = (key for key in sorted(store.notes()) if key.startswith(SPACE))
    written = [key.removeprefix(SPACE) for key in keys]
    names = [store.main, *(name for name in written if MARK in name and store.exists(name))]
    route, problem = current(store), None
    try:
        check_served(store, route)
    except GalleryError as error:
        problem = str(error)
    collections = tuple(status_of_collection(store, name) for name in names)
    return Status(store.shown, collections, route, problem)


def status_of_collection(store: Store, name: str) -> CollectionStatus:
    """Returns the state of a collection."""
    space, index = declared(store, name), store.index_of(name)
    return CollectionStatus(
        name,
        store.count(name),
        store.dim(name),
        None if space is None else space.fingerprint,
        share_of(store, name),
        None if index is None else index.kind,
        None if name == store.main else _problem(store, name),
    )


def _problem(store: Store, collection: str) -> str | None:
    """Returns why new vectors do not belong to the present old ones, or cannot be compared."""
    try:
        return why_not_for(store, collection)
    except DataError as error:
        return str(error)


def check_items(store: Store, ids: Sequence[str]) -> int:
    """Returns how many of these items the owner has; raises if there are none."""
    known = sum(len(store.contained(store.main, page)) for page in split(ids, PAGE))
    if known == 0:
        raise none_of(store, len(ids), "files")
    return known


def none_of(store: Store, number: int, source: str) -> GalleryError:
    """Returns the error for items, all unknown to the gallery; `source` is where they are from."""
    return GalleryError(
        f"The gallery in {store.shown} has none of the {number:,} items of the {source}. Check "
        f"that they use the same ids."
    )


class Coverage(NamedTuple):
    """How much of the owner's collection another collection covers."""

    covered: int  # number of the owner's present items that have a vector in the collection
    items: int  # number of the owner's present items

    @property
    def share(self) -> float:
        """Share of the items, from 0 to 1."""
        return self.covered / max(self.items, 1)


def coverage(store: Store, collection: str) -> Coverage:
    """Counts the owner's items that a collection has, one by one: totals may agree by accident."""
    return Coverage(store.covered(collection), store.count(store.main))


def share_of(store: Store, collection: str) -> float:
    """Returns the share of the owner's items that a collection has; the owner's own has all."""
    return 1.0 if collection == store.main else coverage(store, collection).share


def check_share(store: Store, collection: str, *, partial: bool = False) -> float:
    """Returns the share of the owner's items that a collection has; unless `partial`, all of them.

    A service that searches a part of the items alone no longer finds the others.
    """
    if collection == store.main:
        return 1.0
    check_exists(store, collection, "serve")
    filled = coverage(store, collection)
    if filled.covered < filled.items and not partial:
        raise GalleryError(
            f"`{collection}` has {filled.covered:,} of the {filled.items:,} items of "
            f"`{store.main}` ({in_percent(filled.share)}): a service that searches it alone would "
            f"no longer find the other {filled.items - filled.covered:,}. Finish the backfill "
            f"first (`nobackfill gallery backfill` with a plan of every item, without --share), or "
            f"pass --partial if your service searches `{store.main}` as well (MixedGallery)."
        )
    return filled.share


def in_percent(share: float) -> str:
    """Formats a share, rounded down, so that only a full one is 100 %.

    Example:
        >>> in_percent(0.225), in_percent(0.9999), in_percent(1.0)
        ('22.5 %', '99.9 %', '100.0 %')
    """
    return f"{int(1000 * share + 1e-9) / 10:.1f} %"
