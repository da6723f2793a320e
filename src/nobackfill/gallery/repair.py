"""Repairs damaged notes of a gallery from what its log, its route and its database still know."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

from nobackfill.errors import DataError, GalleryError, SpaceMismatch
from nobackfill.gallery.provenance import SPACE, declaration, declare, space_key
from nobackfill.gallery.routing import (
    LOG,
    ROUTE,
    Route,
    check_served,
    current,
    log,
    read_entry,
    write_entry,
    write_route,
)
from nobackfill.gallery.sketch import NOTE, read_sketch
from nobackfill.gallery.stores.base import Store
from nobackfill.vectors.space import Space, with_dim

SHOWN = 200  # letters of an unreadable note that are kept in the log


@dataclass(frozen=True)
class Repair:
    """A damaged note."""

    note: str  # its key
    problem: str  # what is wrong with it
    remedy: str  # what was done about it, or would be
    unknown: str | None = None  # what could not be known, and what to do about that


class Claim(NamedTuple):
    """Which model made a collection, as the caller says."""

    collection: str
    space: Space


def repair(store: Store, claim: Claim | None = None, *, dry_run: bool = False) -> list[Repair]:
    """Repairs the notes of a gallery, and returns what was damaged.

    The owner's data and all vectors stay as they are. What nobody knows is said, not guessed.

    Args:
        store: Gallery.
        claim: Model of a collection whose declaration is lost.
        dry_run: Whether nothing is written.
    """

    def all_repairs() -> list[Repair]:
        write = not dry_run
        repairs = [*repair_log(store, write=write)]
        repairs += repair_declarations(store, claim, write=write)
        repairs += repair_sketches(store, write=write)
        repairs += repair_route(store, write=write)
        if repairs and write:
            log(store, "repair", notes=[one.note for one in repairs])
        return repairs

    return all_repairs() if dry_run else store.exclusively("repair the notes", all_repairs)


def repair_log(store: Store, *, write: bool) -> Iterator[Repair]:
    """Replaces unreadable entries by entries that say so."""
    for key, text in sorted(store.notes().items()):
        if not key.startswith(LOG):
            continue
        try:
            read_entry(key, text)
        except DataError as error:
            if write:
                entry = {"time": _time_of(key), "by": "unknown", "action": "unreadable"}
                write_entry(store, key, {**entry, "text": text[:SHOWN]})
            yield Repair(
                key,
                _problem(error),
                "replaced by an entry that says so",
                "who did what then",
            )


def _time_of(key: str) -> str:
    """Returns the time in the key of an entry; the present one if that is damaged, too."""
    try:
        moment = datetime.fromtimestamp(float(key.removeprefix(LOG)), UTC)
    except (ValueError, OverflowError, OSError):
        moment = datetime.now(UTC)
    return moment.isoformat(timespec="milliseconds")


def repair_declarations(store: Store, claim: Claim | None, *, write: bool) -> Iterator[Repair]:
    """Removes declarations of collections that are gone, and declares again what a caller knows."""
    there = store.new_collections()
    for key in sorted(store.notes()):
        name = key.removeprefix(SPACE)
        if key.startswith(SPACE) and name != store.main and name not in there:
            if write:
                store.note(key, None)
            yield Repair(key, f"there is no collection `{name}`", "removed")
    for name in there:
        problem = _problem_of_declaration(store, name)
        if problem is not None:
            yield _declare_again(store, name, problem, claim, write=write)


def _problem_of_declaration(store: Store, collection: str) -> str | None:
    """Returns what is wrong with the declaration of a collection; None if nothing is."""
    try:
        known = declaration(store, collection)
    except DataError as error:
        return _problem(error)
    if known is None:
        return "the collection has vectors, but no note" if store.count(collection) else None
    dim = store.dim(collection)
    if known.space.dim not in (None, dim):
        return f"it declares {known.space.dim} dimensions, but the vectors have {dim}"
    return None


def _declare_again(
    store: Store, collection: str, problem: str, claim: Claim | None, *, write: bool
) -> Repair:
    key, known = space_key(collection), fingerprint_known(store, collection)
    by = f"that of the fingerprint {known}, by the log" if known else "nobody knows which"
    if claim is None or claim.collection != collection:
        return Repair(
            key,
            problem,
            "left as it is",
            f"which model made the vectors ({by}): pass --name and --model, or remove the "
            f"collection with `nobackfill gallery clean`",
        )
    space = with_dim(claim.space, store.dim(collection))
    if known is not None and space.fingerprint != known:
        raise SpaceMismatch(
            f"The vectors of `{collection}` are not of the model that --model names: the log says "
            f"{known}, but that one is {space.fingerprint}. Name the model that made them."
        )
    if write:
        store.note(key, None)
        declare(store, collection, space)
    doubt = None if known else "whether these are its vectors: only you say so"
    return Repair(key, problem, f"declared to be of {space.fingerprint}", doubt)


def fingerprint_known(store: Store, collection: str) -> str | None:
    """Returns the fingerprint of a collection's vectors by the log and the route, if they agree."""
    found: set[str] = set()
    for _, entry in readable_entries(store):
        if entry.get("collection") != collection:
            continue
        if entry["action"] == "clean":
            found.clear()
        elif isinstance(entry.get("space"), str):
            found.add(entry["space"])
    try:
        route: Route | None = current(store)
    except DataError:
        route = None
    while route is not None:
        if route.collection == collection and route.space is not None:
            found.add(route.space)
        route = route.before
    return found.pop() if len(found) == 1 else None


def readable_entries(store: Store) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields the keys and entries of the log that can be read, earliest first."""
    for key, text in sorted(store.notes().items()):
        if key.startswith(LOG):
            try:
                yield key, read_entry(key, text)
            except DataError:
                continue


def repair_sketches(store: Store, *, write: bool) -> Iterator[Repair]:
    """Removes unreadable digests of old vectors, and those of collections that are gone."""
    there = store.new_collections()
    for key, text in sorted(store.notes().items()):
        if not key.startswith(NOTE):
            continue
        collection, unknown = key.removeprefix(NOTE), None
        problem = None if collection in there else f"there is no collection `{collection}`"
        try:
            read_sketch(text, f"the note `{key}`")
        except DataError as error:
            problem = _problem(error)
            if collection in there:
                unknown = "whether the vectors were written for the items that the gallery has"
        if problem is not None:
            if write:
                store.note(key, None)
            yield Repair(key, problem, "removed", unknown)


def repair_route(store: Store, *, write: bool) -> Iterator[Repair]:
    """Restores what is served from the log, if the route is unreadable, lost or leads nowhere."""
    replayed, is_sure = replay(store)
    try:
        now = current(store)
        check_served(store, now)
        lost = store.read_note(ROUTE) is None and replayed != now
        problem = "the note is lost" if lost else None
    except (DataError, GalleryError) as error:
        problem = _problem(error)
    if problem is None:
        return
    unknown = None if is_sure else "whether an unreadable entry of the log was a later switch"
    route: Route | None = replayed
    while route is not None and not _is_served(store, route):
        route = route.before
    if route is None:
        others = store.new_collections()
        yield Repair(
            ROUTE,
            problem,
            "left as it is",
            f"what to serve: choose with `nobackfill gallery switch` among "
            f"{', '.join(others) or 'nothing, as there are no vectors'}",
        )
        return
    if write:
        write_route(store, route)
    yield Repair(ROUTE, problem, f"`{route.collection}` is served, by the log", unknown)


def _is_served(store: Store, route: Route) -> bool:
    try:
        check_served(store, route)
    except (DataError, GalleryError):
        return False
    return True


def replay(store: Store) -> tuple[Route, bool]:
    """Returns what is served by the log, and whether every entry of it could be read."""
    route, is_sure = Route(store.main), True
    number = sum(key.startswith(LOG) for key in store.notes())
    entries = [entry for _, entry in readable_entries(store)]
    for entry in entries:
        if entry["action"] == "switch":
            route = _switched(route, entry)
        elif entry["action"] == "rollback":
            route = _gone_back(route, entry)
    is_sure = len(entries) == number and all(one["action"] != "unreadable" for one in entries)
    return route, is_sure


def _switched(route: Route, entry: dict[str, Any]) -> Route:
    """Returns the route after a switch that the log tells of."""
    collection, query_space = str(entry.get("collection")), entry.get("query_space")
    again = (route.collection, route.query_space) == (collection, query_space)
    before = route.before if again else route
    share = float(entry.get("share") or 0.0)
    return Route(collection, query_space, share, before, entry.get("model"), entry.get("space"))


def _gone_back(route: Route, entry: dict[str, Any]) -> Route:
    """Returns the route after a rollback that the log tells of, perhaps twice after a kill."""
    target = (entry.get("collection"), entry.get("query_space"))
    if route.before is None or (route.collection, route.query_space) == target:
        return route
    return route.before


def _problem(error: Exception) -> str:
    """Returns the first sentence of an error."""
    return str(error).partition(". ")[0].rstrip(".")
