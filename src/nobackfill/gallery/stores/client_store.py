"""Base class of databases whose client sends keys, vectors and queries in batches."""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from nobackfill.errors import GalleryError
from nobackfill.gallery.stores.base import (
    MARK,
    Answer,
    Matrix,
    Rows,
    SearchResults,
    Store,
    notes_of,
    unit,
)
from nobackfill.gallery.stores.client import (
    ClientCalls,
    alone,
    batches,
    check_dim,
    check_unit_length,
    choose_name,
)
from nobackfill.gallery.stores.uri import Uri

Key = int | str  # an id in the type of the database

SAMPLE = 100  # vectors whose lengths are checked
QUERIES = 100  # in one message


class ClientStore(Store):
    """A collection on a server, or embedded in a file or folder.

    Subclasses set `metric` in `_open_main`.
    """

    metric: str  # of the owner's vectors
    id_types: str  # ids that the database can store, for errors

    def __init__(self, uri: Uri, package: str, *, read_only: bool):
        self._uri, self._call = uri, ClientCalls(uri, package)
        self.locks = not uri.host
        self.client = self._call(self._open_client)
        try:
            name = uri.options.get("collection") or (uri.path.strip("/") if uri.host else "")
            names = self._owner_collections(name)
            main = choose_name("collection", "collection", name, names, uri.shown)
            super().__init__(main, uri.shown, read_only=read_only)
            self._open_main(uri.options.get("vector", ""))
            self._checked = self.metric.lower() == "cosine"
            self._check_cosines()
        except BaseException:
            self.close()
            raise

    @abstractmethod
    def _open_client(self) -> Any:
        """Opens the client."""

    @abstractmethod
    def _owner_collections(self, name: str) -> list[str]:
        """Returns the owner's collections, and `name` if it is another name of one."""

    @abstractmethod
    def _open_main(self, vector: str) -> None:
        """Reads the properties of the owner's collection; `vector` is empty for the only vector."""

    @abstractmethod
    def _key(self, collection: str, id: str) -> Key | None:
        """Converts an id to a key; None if the collection cannot store it."""

    @abstractmethod
    def _present(self, collection: str, keys: Sequence[Key]) -> list[Key]:
        """Returns those of one batch of keys that exist."""

    @abstractmethod
    def _retrieve(self, collection: str, keys: Sequence[Key]) -> list[Any]:
        """Returns the records of one batch of keys."""

    @abstractmethod
    def _rows(self, collection: str, records: Sequence[Any]) -> Rows:
        """Converts records of the client to rows."""

    @abstractmethod
    def _write(self, collection: str, vector_of: Mapping[Key, Matrix]) -> None:
        """Inserts or replaces one batch of vectors."""

    @abstractmethod
    def _delete(self, collection: str, keys: Sequence[Key]) -> None:
        """Removes one batch of keys."""

    @abstractmethod
    def _drop(self, collection: str) -> None:
        """Removes a collection that exists."""

    @abstractmethod
    def _nearest(self, collection: str, query: Matrix, k: int) -> list[list[tuple[str, float]]]:
        """Returns ids and cosines of the neighbours of one batch of unit queries."""

    def _check_cosines(self) -> None:
        """Raises if the scores of the owner's vectors do not give cosines."""
        if not self._checked:
            sample = self.scan(self.main, limit=SAMPLE)
            check_unit_length(sample.vectors, f"the metric {self.metric}", self.shown)
            self._checked = bool(sample.ids)

    def _keys(self, collection: str, ids: Sequence[str]) -> list[Key]:
        """Returns the ids that the collection can store as keys, without duplicates."""
        keys = (self._key(collection, id) for id in ids)
        return list(dict.fromkeys(key for key in keys if key is not None))

    def _require_key(self, collection: str, id: str) -> Key:
        """Converts an id to a key; raises if the collection cannot store it."""
        key = self._key(collection, id)
        if key is None:
            raise GalleryError(f"The id {id!r} cannot be stored: it must be {self.id_types}.")
        return key

    def get(self, collection: str, ids: Sequence[str]) -> Rows:
        """See `Store`."""
        records: list[Any] = []
        for keys in batches(self._keys(collection, ids), self.dim(collection)):
            records += self._retrieve(collection, keys)
        return self._rows(collection, records)

    def contained(self, collection: str, ids: Sequence[str]) -> set[str]:
        """See `Store`; does not read vectors."""
        present: set[Key] = set()
        for keys in batches(self._keys(collection, ids), 1):
            present.update(self._present(collection, keys))
        return {id for id in ids if self._key(collection, id) in present}

    def search(self, collection: str, query: Matrix, k: int) -> SearchResults:
        """See `Store`."""
        if collection == self.main:
            self._check_cosines()
        rows, vectors = [], unit(query)
        for first in range(0, len(vectors), QUERIES):
            rows += self._nearest(collection, vectors[first : first + QUERIES], k)
        return SearchResults.of(rows)

    def exclusively(self, action: str, work: Callable[[], Answer], *, retry: bool = True) -> Answer:
        """See `Store`; servers have no lock."""
        self.check_may_write()
        if not self.locks:
            return work()
        with alone(Path(self._uri.path), self.shown):
            return work()

    @abstractmethod
    def _collections(self) -> list[str]:
        """Returns the names of all collections."""

    def new_collections(self) -> list[str]:
        """See `Store`."""
        new = {name for name in self._collections() if name.startswith(f"{self.main}{MARK}")}
        return sorted(new - {notes_of(self.main)})

    def upsert(self, collection: str, ids: Sequence[str], vectors: Matrix) -> None:
        """See `Store`; items that the owner has removed are left out."""
        self.check_writable(collection)
        dim = self.dim(collection)
        check_dim(vectors, dim, collection)
        keys = (self._require_key(collection, id) for id in ids)
        vector_of = dict(zip(keys, vectors, strict=True))
        for batch in batches(list(vector_of), dim):
            if present := self._present(self.main, batch):
                self._write(collection, {key: vector_of[key] for key in present})

    def remove(self, collection: str, ids: Sequence[str]) -> None:
        """See `Store`."""
        self.check_writable(collection)
        for keys in batches(self._keys(collection, ids), 1):
            self._delete(collection, keys)

    def drop(self, collection: str) -> None:
        """See `Store`."""
        self.check_writable(collection)
        if self.exists(collection):
            self._drop(collection)

    def note(self, key: str, text: str | None) -> None:
        """See `Store`."""
        self.check_may_write()
        if text is not None:
            self._write_note(key, text)
        elif self.exists(notes_of(self.main)):
            self._delete(notes_of(self.main), [self._note_key(key)])

    def _note_key(self, key: str) -> Key:
        """Returns the key of the record of a note."""
        return key

    @abstractmethod
    def _write_note(self, key: str, text: str) -> None:
        """Writes a note, and creates the collection of notes if necessary."""
