"""What every vector database is from outside: collections of vectors by id, and a few notes.

The owner's collection is only ever read. What we write goes into collections of our own beside it,
whose names tell so, and no other can be written by mistake.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nobackfill.errors import ConfigError, GalleryError
from nobackfill.vectors.space import Space

MARK = "__nobackfill_"  # in the name of every collection that is ours
NAME = re.compile(r"[a-z0-9][a-z0-9_]{0,39}")

Matrix = NDArray[np.float32]


class Rows(NamedTuple):
    """Some items of a collection.

    Attributes:
        ids: As text, whatever the database has.
        vectors: One row for each, as they are stored.
        columns: What else is stored of them, by name; None where an item lacks it.
    """

    ids: list[str]
    vectors: Matrix
    columns: dict[str, list[Any]]


class Found(NamedTuple):
    """What queries found, the best first; fewer than were asked for where there are no more.

    Attributes:
        ids: Of each query.
        cosines: Of each query, to what it found.
    """

    ids: list[list[str]]
    cosines: list[list[float]]


class Index(NamedTuple):
    """By what vectors are found without looking at each.

    Attributes:
        kind: As its database tells it, such as `hnsw (vector_cosine_ops, m=16)`.
        lacks: How many vectors it does not have.
    """

    kind: str
    lacks: int = 0


class Store(ABC):
    """A vector database, opened at one collection of its owner.

    Ids are compared as text; `scan` has them in the order of the database, which never changes.

    Attributes:
        exact: Whether `search` looks at every vector.
        main: The owner's collection.
        shown: Where it is, without credentials.
        read_only: Whether every write is refused.
    """

    exact: bool = True

    def __init__(self, main: str, shown: str, *, read_only: bool = False):
        self.main, self.shown, self.read_only = main, shown, read_only

    # Reading: any collection.

    @abstractmethod
    def exists(self, collection: str) -> bool:
        """Whether there is such a collection."""

    @abstractmethod
    def count(self, collection: str) -> int:
        """How many items it holds."""

    @abstractmethod
    def dim(self, collection: str) -> int:
        """How many dimensions its vectors have."""

    @abstractmethod
    def scan(self, collection: str, *, after: str | None = None, limit: int = 1000) -> Rows:
        """The next items after an id, in the database's order; none where it ends.

        An id that was removed meanwhile still tells where to go on.
        """

    @abstractmethod
    def get(self, collection: str, ids: Sequence[str]) -> Rows:
        """Those of some items that are there, in any order."""

    def contained(self, collection: str, ids: Sequence[str]) -> set[str]:
        """Those of some items that are there."""
        return set(self.get(collection, ids).ids)

    @abstractmethod
    def search(self, collection: str, query: Matrix, k: int) -> Found:
        """The items of the largest cosine to each query."""

    # Writing: collections of our own.

    @abstractmethod
    def create(self, collection: str, dim: int) -> None:
        """Makes an empty collection; nothing where it is there."""

    @abstractmethod
    def upsert(self, collection: str, ids: Sequence[str], vectors: Matrix) -> None:
        """Writes vectors of items, in place of earlier ones; all of them, or after a fault some."""

    @abstractmethod
    def remove(self, collection: str, ids: Sequence[str]) -> None:
        """Removes items; those that are not there do not matter."""

    @abstractmethod
    def drop(self, collection: str) -> None:
        """Removes a collection; nothing where there is none."""

    # An index of new vectors. By default there is none to build: an engine that looks at every
    # vector needs none, and one that indexes what it is given does so by itself.

    def index_of(self, collection: str) -> Index | None:
        """By what its vectors are found; None where every one is looked at."""
        return None if self.exact else Index("its own")

    def wanted_index(self, collection: str) -> Index | None:
        """What `index` would build on a collection of ours, and over how many vectors.

        It is of the kind that the owner's vectors have; refused where they have none. None where
        the engine sees to it by itself.
        """
        return None

    def index(self, collection: str, *, watch: Callable[[str], None] = lambda line: None) -> None:
        """Builds what `wanted_index` tells; nothing where it is there. May be stopped anywhere.

        Args:
            collection: Of ours.
            watch: Is told how far it is.
        """
        self.check_writable(collection)

    # Notes: small texts by key, such as which space a collection is of, and which one is served.

    @abstractmethod
    def notes(self) -> dict[str, str]:
        """All notes."""

    @abstractmethod
    def note(self, key: str, text: str | None) -> None:
        """Writes a note at once and whole; None removes it."""

    def own_space(self) -> Space | None:
        """What made the owner's vectors, where their database tells; none but files do."""
        return None

    def retire(self) -> None:
        """Removes the owner's old vectors, and nothing else of theirs. There is no way back."""
        raise GalleryError(
            f"wanted to remove the old vectors, but {self.shown} keeps them together with what "
            f"else is stored. Remove them yourself, once nothing asks them any more."
        )

    def close(self) -> None:  # noqa: B027 - files have nothing to end
        """Ends the connection, where there is one."""

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def check_writable(self, collection: str) -> None:
        """Refuses to write where nothing shall be written, or what is not ours."""
        self.check_may_write()
        if not collection.startswith(f"{self.main}{MARK}"):
            raise GalleryError(
                f"wanted to write a collection of our own beside `{self.main}`, but got "
                f"`{collection}`. What its owner stored is never written."
            )

    def check_may_write(self) -> None:
        """Refuses to write where nothing shall be written."""
        if self.read_only:
            raise GalleryError(f"wanted to write, but {self.shown} was opened to be read only.")


def ours(main: str, name: str) -> str:
    """The collection in which new vectors go, beside the owner's.

    Example:
        >>> ours("photos", "v2")
        'photos__nobackfill_v2'
    """
    if not NAME.fullmatch(name) or name == "notes":  # which is where notes are kept
        raise ConfigError(
            f"wanted a name of at most 40 small letters, digits and _ for the new vectors, and not "
            f"`notes`, but got {name!r}."
        )
    return f"{main}{MARK}{name}"


def as_matrix(vectors: Any, dim: int) -> Matrix:
    """Rows of vectors in float32, whatever a database's client returned.

    Args:
        vectors: One for each item, maybe none.
        dim: Of each.
    """
    return np.asarray(vectors, dtype=np.float32).reshape(-1, dim)


def unit(vectors: Matrix) -> Matrix:
    """Rows of unit length; a row of zeros stays one."""
    length = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.maximum(length, 1e-12), dtype=np.float32)
