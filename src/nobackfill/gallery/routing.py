"""Which collection is served: one note, changed at once, and a log of every change."""

import json
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from getpass import getuser
from typing import Any

from nobackfill.errors import GalleryError
from nobackfill.gallery.stores.base import Store

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


def switch(
    store: Store,
    collection: str,
    *,
    query_space: str | None,
    share: float,
    standing: str | None = None,
) -> Route:
    """Serves another collection from now on. The record is one note: whole, or not there.

    What is to be served is taken as it is: whether it holds every item (`check_share`), and whether
    the model that asks was measured on it (`check_standing`), is for the caller to look at first.
    Where the same model asked the same collection already, going back leads to what was before.

    Args:
        store: Where the gallery is.
        collection: To be served.
        query_space: Fingerprint of the model that asks.
        share: How much of the gallery has new vectors.
        standing: What is known of the model on the collection, for the log.
    """
    if not store.exists(collection):
        raise GalleryError(
            f"wanted to serve `{collection}`, but {store.shown} has no such collection. Backfill "
            f"it first."
        )
    now = current(store)
    again = (now.collection, now.query_space) == (collection, query_space)
    route = Route(collection, query_space, share, before=now.before if again else asdict(now))
    store.note(ROUTE, json.dumps(asdict(route)))
    told = {"collection": collection, "query_space": query_space, "share": share}
    log(store, "switch", **told, standing=standing)
    return route


def before(store: Store) -> Route:
    """What was served before the last switch."""
    now = current(store)
    if now.before is None:
        switched = any(one["action"] == "switch" for one in entries(store))
        why = "every switch of it was taken back" if switched else "it was never switched"
        raise GalleryError(
            f"wanted to go back in {store.shown}, but {why}: `{now.collection}` is served, as at "
            f"first."
        )
    route = Route(**now.before)
    if not store.exists(route.collection):
        raise GalleryError(
            f"wanted to go back to `{route.collection}`, but it was removed. Serve another by "
            f"`nobackfill gallery switch`."
        )
    return route


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
