"""Which collection is served: one note, changed at once, and a log of every change."""

import json
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from getpass import getuser
from typing import Any

from nobackfill.errors import GalleryError
from nobackfill.gallery.base import Store

ROUTE, LOG = "route", "log/"


@dataclass(frozen=True)
class Route:
    """What is served.

    Attributes:
        collection: Its name: the owner's, or a new one.
        query_space: Fingerprint of the model that asks.
        share: How much of the gallery had new vectors then.
        before: What was served before; None at first.
    """

    collection: str
    query_space: str | None = None
    share: float = 0.0
    before: dict[str, Any] | None = None


def current(store: Store) -> Route:
    """What is served now: the owner's collection, where nobody has switched."""
    text = store.notes().get(ROUTE)
    return Route(store.main) if text is None else Route(**json.loads(text))


def switch(store: Store, collection: str, *, query_space: str | None, share: float) -> Route:
    """Serves another collection from now on. The record is one note: whole, or not there."""
    if not store.exists(collection):
        raise GalleryError(
            f"wanted to serve `{collection}`, but {store.shown} has no such collection. Backfill "
            f"it first."
        )
    route = Route(collection, query_space, share, before=asdict(current(store)))
    store.note(ROUTE, json.dumps(asdict(route)))
    log(store, "switch", collection=collection, query_space=query_space, share=share)
    return route


def before(store: Store) -> Route:
    """What was served before the last switch."""
    now = current(store)
    if now.before is None:
        raise GalleryError(
            f"wanted to go back, but {store.shown} was never switched: `{now.collection}` is "
            f"served as ever."
        )
    return Route(**now.before)


def rollback(store: Store) -> Route:
    """Serves again what was served before the last switch."""
    route = before(store)
    store.note(ROUTE, json.dumps(asdict(route)))
    log(store, "rollback", collection=route.collection, query_space=route.query_space)
    return route


def log(store: Store, action: str, **told: Any) -> None:
    """Writes down who did what, and when; entries are never changed."""
    now = datetime.now(UTC)
    entry = {"time": now.isoformat(timespec="milliseconds"), "by": who(), "action": action, **told}
    store.note(f"{LOG}{now.timestamp():017.6f}", json.dumps(entry))


def entries(store: Store) -> list[dict[str, Any]]:
    """What was done, the earliest first."""
    notes = store.notes()
    return [json.loads(notes[key]) for key in sorted(notes) if key.startswith(LOG)]


def who() -> str:
    """The name of the user, as far as the system knows."""
    try:
        return getuser()
    except (KeyError, OSError):
        return "unknown"
