"""Which collection is served: one note, replaced atomically, and a log of every change."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from getpass import getuser
from typing import Any

from nobackfill.core.json_files import as_kind, parse_object
from nobackfill.errors import DataError, GalleryError
from nobackfill.gallery.provenance import declared
from nobackfill.gallery.stores.base import REPAIR, Store
from nobackfill.gallery.stores.client import check_exists

ROUTE, LOG = "route", "log/"


@dataclass(frozen=True)
class Route:
    """What is served."""

    collection: str  # the owner's, or a new one
    query_space: str | None = None  # fingerprint of the model that makes the queries
    share: float = 0.0  # share of the gallery that had new vectors at the switch
    before: "Route | None" = None  # what was served before; None at first
    model: str | None = None  # path of that model; None if unknown, as in earlier versions
    space: str | None = None  # fingerprint of the collection's vectors, if known


def current(store: Store) -> Route:
    """Returns what is served now: the owner's collection if nobody has switched."""
    text = store.read_note(ROUTE)
    if text is None:
        return Route(store.main)
    where = f"the note of what {store.shown} serves"
    return as_kind(Route, parse_object(text, where, REPAIR), where, REPAIR)


def write_route(store: Store, route: Route) -> None:
    """Serves a route from now on."""
    store.note(ROUTE, json.dumps(asdict(route)))


def switch(
    store: Store,
    collection: str,
    *,
    query_space: str | None,
    share: float,
    standing: str | None = None,
    model: str | None = None,
    space: str | None = None,
) -> Route:
    """Serves another collection from now on; the record is one note, written atomically.

    The caller checks first whether the collection has every item (`check_share`), whether its
    vectors were written for these items (`check_written_for`), and whether the model was measured
    on it (`check_standing`). If the same model searched the same collection already, a rollback
    leads to what was served before.

    Args:
        store: Gallery.
        collection: Collection to serve.
        query_space: Fingerprint of the model that makes the queries.
        share: Share of the gallery that has new vectors.
        standing: Verdict on the model's queries on the collection, for the log.
        model: Path of the model. A rollback reads its record again.
        space: Fingerprint of the collection's vectors.
    """

    def serve() -> Route:
        check_exists(store, collection, "serve")
        own = declared(store, collection)
        fingerprint = space or (None if own is None else own.fingerprint)
        now = current(store)
        again = (now.collection, now.query_space) == (collection, query_space)
        before = now.before if again else now
        route = Route(collection, query_space, share, before, model, fingerprint)
        check_served(store, route)
        entry = {"collection": collection, "query_space": query_space, "share": share}
        known = {"standing": standing, "space": fingerprint, "model": model}
        with logged(store, "switch", **entry, **known):
            write_route(store, route)
        return route

    return store.exclusively(f"serve `{collection}`", serve)


def check_served(store: Store, route: Route) -> None:
    """Raises if a collection is gone, or of another space than when it was served."""
    if not store.exists(route.collection):
        raise GalleryError(
            f"Cannot serve `{route.collection}`: it was removed. Serve another collection with "
            f"`nobackfill gallery switch`."
        )
    space = declared(store, route.collection)
    if space is not None and route.space not in (None, space.fingerprint):
        raise GalleryError(
            f"Cannot serve `{route.collection}`: its vectors were of the space {route.space} when "
            f"they were served, and another model has replaced them by vectors of "
            f"{space.fingerprint}. Serve them to their model with `nobackfill gallery switch`."
        )


def before(store: Store) -> Route:
    """Returns what was served before the last switch."""
    now = current(store)
    if now.before is None:
        switched = any(entry["action"] == "switch" for entry in entries(store))
        reason = "every switch of it was taken back" if switched else "it was never switched"
        raise GalleryError(
            f"Cannot go back in {store.shown}: {reason}: `{now.collection}` is served, as at first."
        )
    check_served(store, now.before)
    return now.before


def rollback(store: Store) -> Route:
    """Serves again what was served before the last switch."""

    def serve() -> Route:
        route = before(store)
        entry = {"collection": route.collection, "query_space": route.query_space}
        with logged(store, "rollback", **entry):
            write_route(store, route)
        return route

    return store.exclusively("go back", serve)


@contextmanager
def logged(store: Store, action: str, **details: Any) -> Iterator[None]:
    """Logs a change before it is done, so that no kill leaves a change that the log lacks.

    A kill may leave an entry of a change that was not done; the same command does it, and logs it
    again. If the change fails, the entry is removed.
    """
    entry = log(store, action, **details)
    try:
        yield
    except GalleryError:
        if not store.atomic:
            store.note(entry, None)
        raise


def log(store: Store, action: str, **details: Any) -> str:
    """Records who did what and when; entries are never changed. Returns the key of the note."""
    now = datetime.now(UTC)
    time = now.isoformat(timespec="milliseconds")
    entry = {"time": time, "by": user_name(), "action": action, **details}
    key = f"{LOG}{now.timestamp():017.6f}"
    write_entry(store, key, entry)
    return key


def write_entry(store: Store, key: str, entry: Mapping[str, Any]) -> None:
    """Writes an entry of the log."""
    store.note(key, json.dumps(entry))


def read_entry(key: str, text: str) -> dict[str, Any]:
    """Reads the note of an entry of the log."""
    where = f"the note `{key}`"
    entry = parse_object(text, where, REPAIR)
    for name in ("time", "by", "action"):
        as_kind(str, entry.get(name), f"`{name}` in {where}", REPAIR)
    try:
        datetime.fromisoformat(entry["time"])
    except ValueError:
        raise DataError(f"`time` in {where} is no time. {REPAIR}") from None
    return entry


def entries(store: Store) -> list[dict[str, Any]]:
    """Returns the log, earliest entry first."""
    notes = store.notes()
    return [read_entry(key, notes[key]) for key in sorted(notes) if key.startswith(LOG)]


def user_name() -> str:
    """Returns the name of the user if the system knows it."""
    try:
        return getuser()
    except (KeyError, OSError):
        return "unknown"
