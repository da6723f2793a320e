"""Writes new vectors of items beside the old ones, in a planned order; can be stopped anywhere.

What is done is what is stored: each batch asks which of its items have a new vector already, and
which their owner has removed. So a kill, a second process or another start costs nothing but time.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from nobackfill.errors import DataError, GalleryError, SpaceMismatch
from nobackfill.gallery.provenance import declare, declared, names_nothing
from nobackfill.gallery.routing import log
from nobackfill.gallery.stores.base import Matrix, Store
from nobackfill.vectors import Vectors
from nobackfill.vectors.space import Space, names_a_model

BATCH = 256
PAGE = 10_000  # ids that are looked at in one go


@runtime_checkable
class Source(Protocol):
    """Where new vectors come from."""

    space: Space | None
    dim: int

    def make(self, ids: Sequence[str]) -> Matrix:
        """The new vectors of some items, in their order."""


class FromFile:
    """New vectors that were made already.

    Args:
        vectors: Of all items that will be asked for.
    """

    def __init__(self, vectors: Vectors):
        self.vectors, self.space, self.dim = vectors, vectors.space, vectors.dim
        self._row = {str(one): row for row, one in enumerate(vectors.ids.tolist())}

    def make(self, ids: Sequence[str]) -> Matrix:
        """See `Source`."""
        if missing := [one for one in ids if one not in self._row]:
            raise DataError(
                f"wanted new vectors of all items to be written, but {len(missing)} of "
                f"{len(ids)} have none, the first being {missing[0]!r}. Embed them too, or leave "
                f"them out of the plan."
            )
        rows = self.vectors.vectors[[self._row[one] for one in ids]]
        return np.asarray(rows.float().cpu().numpy(), dtype=np.float32)


@dataclass(frozen=True)
class Work:
    """What a backfill will do, or has done.

    Attributes:
        collection: Where new vectors go.
        planned: How many items the plan has, up to where it shall stop.
        done: How many of them have a new vector.
        gone: How many their owner has removed.
        left: How many are to be written.
        numbers: How many numbers that is: vectors times dimensions.
        seconds: How long that will take at the rate that was told or seen; None where it is not.
    """

    collection: str
    planned: int
    done: int
    gone: int
    left: int
    numbers: int
    seconds: float | None = None

    def summary(self) -> dict[str, Any]:
        """As it goes into JSON."""
        return asdict(self)


def foresee(
    store: Store, collection: str, order: Sequence[str], dim: int, *, rate: float | None = None
) -> Work:
    """What is left to be done; nothing is written.

    Args:
        store: Where the gallery is.
        collection: Of new vectors.
        order: The items of the plan.
        dim: Of the new vectors.
        rate: Items in a second.
    """
    done = gone = 0
    there = store.exists(collection)
    for first in range(0, len(order), PAGE):
        some = order[first : first + PAGE]
        done += len(store.contained(collection, some)) if there else 0
        gone += len(some) - len(store.contained(store.main, some))
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
) -> Work:
    """Writes the new vectors of items in their order; goes on where an earlier one ended.

    Args:
        store: Where the gallery is; only `collection` in it is written.
        collection: A name of `ours`.
        order: Ids, those that pay most first.
        source: Makes the vectors.
        rate: At most so many items in a second.
        batch: How many at a time.
        progress: Told how many of the plan are behind.
    """
    begin(store, collection, source)
    started = time.monotonic()
    written = gone = there = 0
    for first in range(0, len(order), batch):
        some = list(order[first : first + batch])
        present = store.contained(store.main, some)
        known = store.contained(collection, some)
        missing = [one for one in some if one in present and one not in known]
        gone, there = gone + len(some) - len(present), there + len(known & present)
        if missing:
            store.upsert(collection, missing, source.make(missing))
            written += len(missing)
            if rate is not None:
                time.sleep(max(0.0, written / rate - (time.monotonic() - started)))
        progress(first + len(some))
    removed = sweep(store, collection)
    seconds = time.monotonic() - started
    log(store, "backfill", collection=collection, written=written, there=there, removed=removed)
    return Work(collection, len(order), there + written, gone, 0, written * source.dim, seconds)


def begin(store: Store, collection: str, source: Source) -> None:
    """Makes the collection, and writes down what its vectors are made by; refuses another model."""
    if source.space is None:
        raise GalleryError(
            "wanted to write down which model made the new vectors, but they do not tell (no "
            "space.json). Make them by nobackfill, or write one."
        )
    if not names_a_model(source.space):
        raise names_nothing("the record of the new ones", source.dim)
    known = declared(store, collection) if store.exists(collection) else None
    if known is not None and known.fingerprint != source.space.fingerprint:
        raise SpaceMismatch(
            f"wanted to go on with `{collection}`, but its vectors are of the space "
            f"{known.fingerprint}, and the new ones of {source.space.fingerprint}. Choose another "
            f"name, or remove what is there by `nobackfill gallery clean`."
        )
    store.create(collection, source.dim)
    if store.dim(collection) != source.dim:
        raise SpaceMismatch(
            f"wanted vectors of {store.dim(collection)} dimensions in `{collection}`, but got "
            f"{source.dim}."
        )
    if known is None:
        declare(store, collection, source.space)


def sweep(store: Store, collection: str) -> int:
    """Removes new vectors of items that their owner has removed; returns how many."""
    removed = 0
    for ids in pages(store, collection):
        orphans = sorted(set(ids) - store.contained(store.main, ids))
        if orphans:
            store.remove(collection, orphans)
            removed += len(orphans)
    return removed


def pages(store: Store, collection: str, *, limit: int = 1000) -> Iterator[list[str]]:
    """All ids of a collection, some at a time."""
    after = None
    while ids := store.scan(collection, after=after, limit=limit).ids:
        yield ids
        after = ids[-1]
