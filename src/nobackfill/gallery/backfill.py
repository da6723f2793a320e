"""Writes new vectors of items next to the old ones, in a planned order; safe to interrupt.

Progress is not recorded: each batch looks up which of its items have a new vector already, and
which the owner has removed. A kill, a second process or another start cost nothing but time.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import numpy as np

from nobackfill.errors import ConfigError, DataError, GalleryError, SpaceMismatch
from nobackfill.gallery.planning.plan_file import BackfillPlan
from nobackfill.gallery.provenance import (
    check_same,
    check_token,
    declaration,
    declare,
    names_nothing,
    space_key,
    while_declared,
    writing,
)
from nobackfill.gallery.routing import log
from nobackfill.gallery.sketch import Sketch, compare, is_other, keep
from nobackfill.gallery.status import none_of
from nobackfill.gallery.stores.base import PAGE, Matrix, Rows, Store
from nobackfill.gallery.stores.client import split
from nobackfill.vectors import Vectors
from nobackfill.vectors.space import Space, names_a_model

BATCH = 256


@runtime_checkable
class Source(Protocol):
    """Provides new vectors."""

    space: Space | None
    dim: int

    def make(self, ids: Sequence[str]) -> Matrix:
        """Returns the new vectors of these items, in their order."""


class FromFile:
    """New vectors from a file that contains every item to be written."""

    def __init__(self, vectors: Vectors):
        self.vectors, self.space, self.dim = vectors, vectors.space, vectors.dim
        self._row_of = {str(id): row for row, id in enumerate(vectors.ids.tolist())}

    def __contains__(self, id: str) -> bool:
        return id in self._row_of

    def make(self, ids: Sequence[str]) -> Matrix:
        """See `Source`."""
        remedy = "have no new vector. Embed them too, or leave them out of the plan"
        rows = self.vectors.vectors[rows_of_ids(self._row_of, ids, remedy)]
        return np.asarray(rows.float().cpu().numpy(), dtype=np.float32)


def rows_of_ids(row_of: Mapping[str, int], ids: Sequence[str], remedy: str) -> list[int]:
    """Returns the rows of items; raises with what is wrong and a remedy if some have none."""
    if missing := [id for id in ids if id not in row_of]:
        raise DataError(
            f"{len(missing)} of {len(ids)} items to be written, such as {missing[0]!r}, {remedy}."
        )
    return [row_of[id] for id in ids]


@dataclass(frozen=True)
class Work:
    """What a backfill will do, or has done."""

    collection: str  # of new vectors
    planned: int  # number of items of the plan, up to the share at which it stops
    done: int  # items with a new vector
    gone: int  # items that the owner has removed
    left: int  # items that are still to be written
    numbers: int  # number of vectors to write, or written, times dimensions
    seconds: float | None = None  # duration or its estimate; None where the rate is unknown
    notes: tuple[str, ...] = ()  # what could not be checked


def foresee(
    store: Store, collection: str, order: Sequence[str], dim: int, *, rate: float | None = None
) -> Work:
    """Returns what remains to be done at `rate` items per second; writes nothing.

    Raises if the owner has none of the items.
    """
    check_rate(rate)
    done = gone = 0
    exists = store.exists(collection)
    for ids in split(order, PAGE):
        done += len(store.contained(collection, ids)) if exists else 0
        gone += len(ids) - len(store.contained(store.main, ids))
    if order and gone == len(order):
        raise none_of(store, len(order), "plan")
    left = max(len(order) - done - gone, 0)
    seconds = left / rate if rate else None
    return Work(collection, len(order), done, gone, left, left * dim, seconds)


def backfill(
    store: Store,
    collection: str,
    order: Sequence[str],
    source: Source,
    *,
    rate: float | None = None,
    batch: int = BATCH,
    progress: Callable[[int], None] = lambda done: None,
    plan: BackfillPlan | None = None,
) -> Work:
    """Writes the new vectors of items in their order; continues an interrupted backfill.

    Raises, and writes nothing, if the owner has none of the items, or if `plan` was made from
    vectors of another gallery.

    Args:
        store: Gallery; only `collection` in it is written.
        collection: Name that `ours` returned.
        order: Ids, most profitable first.
        source: Provides the vectors.
        rate: Maximal number of items per second.
        batch: Number of items per write.
        progress: Callback that receives the number of items of the plan that are done.
        plan: Plan that `order` is of.
    """
    check_rate(rate)
    notes = check_plan(store, order, source, plan)
    token = begin(store, collection, source, None if plan is None else plan.old_sketch)
    with writing(store, collection, token):
        work = _write_all(store, collection, token, order, source, rate, batch, progress)
    return replace(work, notes=notes)


def _write_all(
    store: Store,
    collection: str,
    token: str,
    order: Sequence[str],
    source: Source,
    rate: float | None,
    batch: int,
    progress: Callable[[int], None],
) -> Work:
    """Writes the vectors that are missing, batch by batch, and removes those of no item."""
    started = time.monotonic()
    written = gone = there = done = 0
    for ids in split(order, batch):
        # Find the items that exist and have no new vector yet.
        present = store.contained(store.main, ids)
        known = store.contained(collection, ids)
        missing = [id for id in ids if id in present and id not in known]
        gone, there = gone + len(ids) - len(present), there + len(known & present)

        # Write them, and wait where that was faster than the rate allows.
        if missing:
            write(store, collection, token, missing, source.make(missing))
            written += len(missing)
            if rate is not None:
                time.sleep(max(0.0, written / rate - (time.monotonic() - started)))
        done += len(ids)
        progress(done)
    removed = sweep(store, collection, token)
    seconds = time.monotonic() - started
    entry = {"written": written, "there": there, "removed": removed}
    fingerprint = source.space.fingerprint if source.space else None

    def finish() -> None:
        log(store, "backfill", collection=collection, **entry, space=fingerprint)

    while_declared(store, collection, token, "end the backfill", finish)
    numbers = written * source.dim
    return Work(collection, len(order), there + written, gone, 0, numbers, seconds)


def check_rate(rate: float | None) -> None:
    """Raises if a number of items per second is not positive."""
    if rate is not None and not 0 < rate < math.inf:
        raise ConfigError(
            f"The rate must be a positive number of items per second, but is {rate:g}. Leave it "
            f"out to write as fast as possible."
        )


def check_plan(
    store: Store, order: Sequence[str], source: Source, plan: BackfillPlan | None
) -> tuple[str, ...]:
    """Refuses items and vectors of another gallery; returns notes on what could not be checked."""
    if order and not any(store.contained(store.main, ids) for ids in split(order, PAGE)):
        raise none_of(store, len(order), "plan")
    if plan is None:
        return ()
    return (*_check_old(store, plan.old_sketch), *_check_new(source, plan))


def _check_old(store: Store, sketch: Sketch | None) -> tuple[str, ...]:
    """Refuses a plan made from other old vectors than those of the gallery; returns notes."""
    if sketch is None:
        return (
            "an earlier version made the plan, without digests of old vectors: nobody checked that "
            "it is of this gallery",
        )
    agreeing, compared = compare(store, sketch)
    if is_other(agreeing, compared):
        raise GalleryError(
            f"The plan was made from vectors of another gallery than {store.shown}: of {compared} "
            f"old vectors that were compared, {agreeing} are the same here. Make a plan from "
            f"vectors of this gallery (`nobackfill gallery pull`)."
        )
    if not compared:
        return (
            "no old vector could be compared, so nobody checked that the plan is of this gallery",
        )
    return ()


def _check_new(source: Source, plan: BackfillPlan) -> tuple[str, ...]:
    """Refuses new vectors that the order of a plan does not hold for; returns notes.

    The order `informed` is made from the new vectors; the others are only measured on them.
    """
    sketch, space = plan.new_sketch, source.space
    if sketch is None or space is None:
        return ()
    is_of_model = sketch.space == space.fingerprint
    if isinstance(source, FromFile):
        ids = [id for id in sketch.digests if id in source]
        agreeing, compared = sketch.agreement(Rows(ids, source.make(ids), {}))
        if is_of_model and is_other(agreeing, compared):
            raise GalleryError(
                f"The file of new vectors is of other items than the plan: of {compared} new "
                f"vectors that were compared, {agreeing} are the same. Pass the file that the plan "
                f"was made from, or one of the same items."
            )
        is_of_model = is_of_model or (compared > 0 and not is_other(agreeing, compared))
    if is_of_model:
        return ()
    made_from = sketch.space or "a model that they did not declare"
    if plan.order == "informed":
        raise GalleryError(
            f"The order of the plan was made from new vectors of {made_from}, but these are of "
            f"{space.fingerprint}, so it says nothing about them. Make a plan from these vectors "
            f"(`nobackfill gallery plan --order informed`), or one by old vectors alone (`--order "
            f"planned`)."
        )
    return (
        f"the plan was measured with new vectors of {made_from}, but these are of "
        f"{space.fingerprint}: its order holds, by old vectors alone, but its gains do not",
    )


def begin(store: Store, collection: str, source: Source, sketch: Sketch | None = None) -> str:
    """Creates the collection and declares its model; returns its token.

    Refuses vectors of another model. `sketch` is that of the old vectors, which is recorded.
    """
    space = source.space
    if space is None:
        raise GalleryError(
            "The new vectors do not declare which model made them (no space.json). Make them with "
            "nobackfill, or write a space.json."
        )
    if not names_a_model(space):
        raise names_nothing("the record of the new ones", source.dim)

    def make() -> str:
        known, exists = declaration(store, collection), store.exists(collection)
        if known is not None and exists:
            check_same(collection, known.space, space)
        elif known is not None:  # of a collection that is gone
            store.note(space_key(collection), None)
        elif exists and store.count(collection):
            raise GalleryError(
                f"Cannot continue with `{collection}`: it has vectors, but nothing declares which "
                f"model made them. Declare it with `nobackfill gallery repair`, or remove it with "
                f"`nobackfill gallery clean`."
            )
        store.create(collection, source.dim)
        if store.dim(collection) != source.dim:
            raise SpaceMismatch(
                f"`{collection}` requires vectors of {store.dim(collection)} dimensions, but the "
                f"new ones have {source.dim}."
            )
        token = declare(store, collection, space)
        if sketch is not None:
            keep(store, collection, sketch)
        return token

    store.check_writable(collection)
    return store.exclusively(f"begin `{collection}`", make)


def write(store: Store, collection: str, token: str, ids: Sequence[str], vectors: Matrix) -> None:
    """Writes a batch if the collection carries a token still.

    A server without locks may have lost the collection in the meantime; then the batch is removed
    from the one that took its place.
    """
    while_declared(
        store, collection, token, "write vectors", lambda: store.upsert(collection, ids, vectors)
    )
    if not store.locks:
        try:
            check_token(store, collection, token)
        except GalleryError:
            if store.exists(collection):
                store.remove(collection, ids)
            raise


def sweep(store: Store, collection: str, token: str) -> int:
    """Removes new vectors of items that the owner has removed; returns their number."""

    def remove(ids: Sequence[str]) -> int:
        orphans = sorted(set(ids) - store.contained(store.main, ids))
        if orphans:
            store.remove(collection, orphans)
        return len(orphans)

    def look(ids: Sequence[str]) -> int:
        return while_declared(
            store, collection, token, "remove vectors of items that are gone", lambda: remove(ids)
        )

    pages = store.id_pages(collection)
    return sum(look(ids) for ids in pages if set(ids) - store.contained(store.main, ids))
