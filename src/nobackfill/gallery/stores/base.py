"""The interface of a vector database: collections of vectors by id, and small text notes.

The owner's collection is only read. New vectors go into separate collections whose names contain
`MARK`; writing to any other collection is refused.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from nobackfill.core.page import Readable
from nobackfill.errors import ConfigError, GalleryError
from nobackfill.vectors.space import Space

MARK = "__nobackfill_"  # in the name of every collection that nobackfill writes
NOTES = "notes"  # after MARK: the collection of notes
REPAIR = "Run `nobackfill gallery repair`."  # remedy in errors of damaged notes
PAGE = 10_000  # ids that are looked up at once
NAME = re.compile(r"[a-z0-9][a-z0-9_]{0,39}")

Matrix = NDArray[np.float32]
Answer = TypeVar("Answer")


class Rows(NamedTuple):
    """Items of a collection."""

    ids: list[str]  # as text, whatever type the database uses
    vectors: Matrix  # as stored, one row per item
    columns: dict[str, list[Any]]  # other stored values by name; None where an item has none


class SearchResults(NamedTuple):
    """Search results of each query, best first; fewer than requested in a small collection."""

    ids: list[list[str]]
    cosines: list[list[float]]

    @classmethod
    def of(cls, results: Iterable[Sequence[tuple[str, float]]]) -> "SearchResults":
        """Returns results from pairs of an id and a cosine, query by query."""
        rows = list(results)
        return cls([[id for id, _ in row] for row in rows], [[c for _, c in row] for row in rows])

    def pairs(self) -> list[list[tuple[str, float]]]:
        """Returns pairs of an id and a cosine, query by query."""
        rows = zip(self.ids, self.cosines, strict=True)
        return [list(zip(ids, cosines, strict=True)) for ids, cosines in rows]


class Index(NamedTuple):
    """A vector index of a collection."""

    kind: str  # as the database describes it, such as `hnsw (vector_cosine_ops, m=16)`
    lacks: int = 0  # number of vectors that are not in the index


class Store(Readable, ABC):
    """A vector database, opened at one collection of its owner.

    Ids are compared as text. `scan` returns them in a fixed order that the database defines.

    Attributes:
        exact: Whether `search` compares every vector.
        main: Name of the owner's collection.
        shown: URI without credentials.
        read_only: Whether every write is refused.
        locks: Whether `exclusively` keeps other processes out; servers without locks do not.
        atomic: Whether what `exclusively` runs is done as a whole or not at all.
    """

    exact: bool = True
    locks: bool = True
    atomic: bool = False

    def __init__(self, main: str, shown: str, *, read_only: bool):
        self.main, self.shown, self.read_only = main, shown, read_only

    def __repr__(self) -> str:
        only = ", read-only" if self.read_only else ""
        return f"{type(self).__name__}({self.shown}, collection {self.main!r}{only})"

    # Reading: any collection.

    @abstractmethod
    def exists(self, collection: str) -> bool:
        """Whether the collection exists."""

    @abstractmethod
    def count(self, collection: str) -> int:
        """Number of items."""

    @abstractmethod
    def dim(self, collection: str) -> int:
        """Number of dimensions of the vectors."""

    @abstractmethod
    def scan(self, collection: str, *, after: str | None = None, limit: int = 1000) -> Rows:
        """Returns the next items after an id, in the database's order; empty at the end.

        `after` may be an id that has been removed meanwhile.
        """

    def pages(
        self, collection: str, *, after: str | None = None, limit: int = 1000
    ) -> Iterator[Rows]:
        """Yields all items after an id, at most `limit` at a time."""
        while (rows := self.scan(collection, after=after, limit=limit)).ids:
            yield rows
            after = rows.ids[-1]

    def id_pages(self, collection: str) -> Iterator[list[str]]:
        """Yields all ids page by page, without reading vectors where the database allows it."""
        for rows in self.pages(collection):
            yield rows.ids

    def covered(self, collection: str) -> int:
        """Number of the owner's present items that the collection has a vector of.

        Vectors of items that the owner has removed do not count.
        """
        return sum(len(self.contained(self.main, ids)) for ids in self.id_pages(collection))

    def has_exact_vectors(self) -> bool:
        """Whether the owner's vectors can be read: neither compressed nor removed."""
        return self.exists(self.main)

    @abstractmethod
    def get(self, collection: str, ids: Sequence[str]) -> Rows:
        """Returns the items with these ids that exist, in any order."""

    def contained(self, collection: str, ids: Sequence[str]) -> set[str]:
        """Returns those of the ids that exist."""
        return set(self.get(collection, ids).ids)

    @abstractmethod
    def search(self, collection: str, query: Matrix, k: int) -> SearchResults:
        """Returns the `k` items with the largest cosine to each query."""

    # Writing: new collections only.

    @abstractmethod
    def exclusively(self, action: str, work: Callable[[], Answer], *, retry: bool = True) -> Answer:
        """Runs `work` while no other process changes new collections or notes of this gallery.

        Waits for another process, and raises if that takes long. Where the engine has
        transactions, `work` is one: it is done as a whole or not at all.

        Args:
            action: What `work` does, for errors: "Could not ACTION".
            work: Reads and writes the store; may be repeated after a temporary error.
            retry: Whether it may be repeated where it is unknown whether it was done.
        """

    @abstractmethod
    def new_collections(self) -> list[str]:
        """Returns the names of the collections of new vectors, as the database lists them."""

    @abstractmethod
    def create(self, collection: str, dim: int) -> None:
        """Creates an empty collection; does nothing if it exists."""

    @abstractmethod
    def upsert(self, collection: str, ids: Sequence[str], vectors: Matrix) -> None:
        """Inserts or replaces vectors; after a fault, a part of them may be written."""

    @abstractmethod
    def remove(self, collection: str, ids: Sequence[str]) -> None:
        """Removes items; ignores ids that do not exist."""

    @abstractmethod
    def drop(self, collection: str) -> None:
        """Removes a collection; does nothing if it does not exist."""

    # Index of new vectors. By default there is none to build: exact engines need none, and other
    # engines index new vectors automatically.

    def index_of(self, collection: str) -> Index | None:
        """Returns the index of a collection; None where search compares every vector."""
        return None if self.exact else Index("its own")

    def wanted_index(self, collection: str) -> Index | None:
        """Returns the index that `index` would build on a new collection.

        It has the kind of the index of the owner's vectors; raises if they have none. None where
        the engine builds indexes automatically.
        """
        return None

    def index(self, collection: str, *, watch: Callable[[str], None] = lambda line: None) -> None:
        """Builds the index that `wanted_index` describes, unless it exists. Safe to interrupt.

        `watch` receives progress messages.
        """
        self.check_writable(collection)

    # Notes: small texts by key, such as the space of a collection and the current route.

    @abstractmethod
    def notes(self) -> dict[str, str]:
        """Returns all notes."""

    def read_note(self, key: str) -> str | None:
        """Returns one note; None if it does not exist."""
        return self.notes().get(key)

    @abstractmethod
    def note(self, key: str, text: str | None) -> None:
        """Writes a note atomically; None removes it."""

    def own_space(self) -> Space | None:
        """Returns the space of the owner's vectors if the database records it; only files do."""
        return None

    def retire(self, collection: str) -> None:
        """Removes the owner's old vectors and nothing else. This cannot be undone.

        Counts again, right before, what has no vector in the new `collection`, and raises if
        there is any: the owner may have inserted items meanwhile.
        """
        raise GalleryError(
            f"Cannot remove the old vectors: {self.shown} keeps them together with other data. "
            f"Remove them yourself once nothing searches them any more."
        )

    def close(self) -> None:  # noqa: B027 - files have no connection
        """Closes the connection, if there is one."""

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def check_is_covered(self, collection: str) -> None:
        """Raises if an item of the owner has no vector in a collection."""
        missing = self.count(self.main) - self.covered(collection)
        if missing:
            raise GalleryError(
                f"Cannot remove the old vectors: every item must have a new one, but {missing:,} "
                f"have none. Finish the backfill first."
            )

    def check_writable(self, collection: str) -> None:
        """Raises if the store is read only or the collection belongs to the owner."""
        self.check_may_write()
        if not collection.startswith(f"{self.main}{MARK}"):
            raise GalleryError(
                f"Cannot write to `{collection}`: nobackfill writes only to collections named "
                f"`{self.main}{MARK}NAME`. The owner's data is never written."
            )
        if collection == notes_of(self.main):
            raise GalleryError(
                f"New vectors cannot be named `{NOTES}`: that collection stores notes. Choose "
                f"another name."
            )

    def check_may_write(self) -> None:
        """Raises if the store is read only."""
        if self.read_only:
            raise GalleryError(f"Cannot write: {self.shown} was opened read only.")


def ours(main: str, name: str) -> str:
    """Returns the name of the collection for new vectors.

    Example:
        >>> ours("photos", "v2")
        'photos__nobackfill_v2'
    """
    if not NAME.fullmatch(name) or name == NOTES:
        raise ConfigError(
            f"{name!r} cannot be the name of new vectors. Use at most 40 lower-case letters, "
            f"digits and _, and not `notes`."
        )
    return f"{main}{MARK}{name}"


def notes_of(main: str) -> str:
    """Returns the name of the collection of notes."""
    return f"{main}{MARK}{NOTES}"


def as_matrix(vectors: Any, dim: int) -> Matrix:
    """Converts the vectors that a client returned to float32 rows; they may be empty."""
    return np.asarray(vectors, dtype=np.float32).reshape(-1, dim)


def unit(vectors: Matrix) -> Matrix:
    """Scales rows of any length to unit length; a row of zeros stays unchanged."""
    exact = vectors.astype(np.float64)
    length = np.linalg.norm(exact, axis=1, keepdims=True)
    return np.asarray(exact / np.where(length > 0, length, 1.0), dtype=np.float32)
