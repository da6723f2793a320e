"""What a gallery holds, what made it, what is served, and how far a backfill is."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from nobackfill.errors import GalleryError
from nobackfill.gallery.provenance import declared
from nobackfill.gallery.routing import Route, current
from nobackfill.gallery.stores.base import MARK, Store

SPACE = "space/"
PAGE = 10_000  # ids that are asked for in one go


@dataclass(frozen=True)
class Held:
    """One collection.

    Attributes:
        name: Of it.
        items: How many.
        dim: Of its vectors.
        space: Fingerprint of what made them; None where nothing declares it.
        share: How much of the owner's collection it covers.
        index: By what its vectors are found; None where every one is looked at.
    """

    name: str
    items: int
    dim: int
    space: str | None
    share: float
    index: str | None


@dataclass(frozen=True)
class Status:
    """All of it.

    Attributes:
        where: The gallery, without credentials.
        collections: The owner's first.
        route: What is served.
    """

    where: str
    collections: tuple[Held, ...]
    route: Route

    def summary(self) -> dict[str, Any]:
        """As it goes into JSON."""
        return asdict(self)


def status_of(store: Store) -> Status:
    """Looks at everything; nothing is written."""
    written = [
        key.removeprefix(SPACE) for key in sorted(store.notes()) if key.startswith(f"{SPACE}")
    ]
    names = [store.main, *(name for name in written if MARK in name and store.exists(name))]
    return Status(store.shown, tuple(held(store, name) for name in names), current(store))


def held(store: Store, name: str) -> Held:
    """One collection."""
    space, index = declared(store, name), store.index_of(name)
    return Held(
        name,
        store.count(name),
        store.dim(name),
        None if space is None else space.fingerprint,
        share_of(store, name),
        None if index is None else index.kind,
    )


def check_items(store: Store, ids: Sequence[str]) -> int:
    """How many of some items the owner has; raises where none is known."""
    known = sum(
        len(store.contained(store.main, ids[first : first + PAGE]))
        for first in range(0, len(ids), PAGE)
    )
    if known == 0:
        raise GalleryError(
            f"wanted a plan for the gallery in {store.shown}, but it has none of the {len(ids):,} "
            f"items of the files. Check that they name their items alike."
        )
    return known


def share_of(store: Store, collection: str) -> float:
    """How much of the owner's collection another one covers."""
    return store.count(collection) / max(store.count(store.main), 1)


def check_share(store: Store, collection: str, *, strict: bool = False) -> float:
    """Returns how much of the gallery a collection covers; refuses a part of it, if `strict`.

    Args:
        store: Where the gallery is.
        collection: To be served.
        strict: Whether it must be all.
    """
    if collection == store.main or not store.exists(collection):
        return 1.0 if collection == store.main else 0.0
    share = share_of(store, collection)
    if share < 1 and strict:
        raise GalleryError(
            f"wanted to serve a collection that holds every item, but `{collection}` has "
            f"{store.count(collection):,} of {store.count(store.main):,} ({in_percent(share)}): "
            f"the others would no longer be found. Finish the backfill first (`nobackfill gallery "
            f"backfill` with a plan of every item, without --share), or leave out --strict if "
            f"your service searches `{store.main}` as well (MixedGallery)."
        )
    return share


def in_percent(share: float) -> str:
    """A share for people, rounded down: 100 % is said of all only.

    Example:
        >>> in_percent(0.225), in_percent(0.9999), in_percent(1.0)
        ('22.5 %', '99.9 %', '100.0 %')
    """
    return f"{int(1000 * share + 1e-9) / 10:.1f} %"
