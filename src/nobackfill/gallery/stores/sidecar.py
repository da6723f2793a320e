"""New collections and notes of a gallery in a file, stored in a separate SQLite file.

SQLite writes are atomic: a kill, a full disk or a second writer leaves earlier data intact.
"""

import os
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from nobackfill.core.atomic_files import take_permissions
from nobackfill.errors import GalleryError
from nobackfill.gallery.stores.base import Matrix, Rows, SearchResults, as_matrix, unit
from nobackfill.gallery.stores.client import split
from nobackfill.ops.nearest import nearest

TABLES = (
    "collections (name text primary key, dim integer not null)",
    "vectors (collection text not null, id text not null, vector blob not null, "
    "primary key (collection, id)) without rowid",
    "notes (key text primary key, text text not null)",
)
PATIENCE = 60.0  # seconds to wait for another writer
MOST = 500  # ids in one query; SQLite has a limit


class SideFile:
    """Collections and notes in a SQLite file, which is created by the first write.

    Args:
        path: Path of that file.
        like: File whose permissions it gets.
    """

    def __init__(self, path: Path, like: Path | None = None):
        self.path, self.like = path, like
        self._cached: dict[str, tuple[str, list[str], torch.Tensor]] = {}
        self._held = threading.local()  # connection of the transaction of a thread

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Makes all reads and writes of a block one transaction; a second writer waits for it."""
        if self._connection is not None:
            yield
            return
        with self._open(write=True) as connection:
            connection.execute("begin immediate")
            self._held.connection = connection
            try:
                yield
            finally:
                self._held.connection = None

    @property
    def _connection(self) -> sqlite3.Connection | None:
        return getattr(self._held, "connection", None)

    @contextmanager
    def _open(self, *, write: bool = False) -> Iterator[sqlite3.Connection]:
        """Opens a connection; a read of a file without tables gets empty, temporary ones."""
        if self._connection is not None:
            if not write:
                make_tables(self._connection)
            yield self._connection
            return
        path = self.path if write or self.path.exists() else ":memory:"
        if write and self.like is not None:
            create_like(self.path, self.like)
        try:
            with closing(sqlite3.connect(path, timeout=PATIENCE)) as connection, connection:
                connection.execute("pragma synchronous = full")
                query = "select 1 from sqlite_master where name = 'notes'"
                if not write and not connection.execute(query).fetchall():
                    for table in TABLES:
                        connection.execute(f"create temp table {table}")
                yield connection
        except sqlite3.Error as error:
            remedy = (
                "nobackfill did not write it: move it away."
                if "not a database" in str(error)
                else "Earlier writes are kept: make room or stop the other writer, and run the "
                "command again."
            )
            raise GalleryError(
                f"Could not {'write' if write else 'read'} {self.path}: {error}. {remedy}"
            ) from error

    def _read(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        """Returns the rows of a query."""
        with self._open() as connection:
            return connection.execute(query, values).fetchall()

    def collections(self) -> list[str]:
        """Returns the names of all collections."""
        return [name for (name,) in self._read("select name from collections order by name")]

    def exists(self, collection: str) -> bool:
        """See `Store`."""
        return bool(self._read("select 1 from collections where name = ?", collection))

    def dim(self, collection: str) -> int:
        """See `Store`."""
        rows = self._read("select dim from collections where name = ?", collection)
        if not rows:
            raise GalleryError(f"No collection `{collection}` in {self.path}.")
        return int(rows[0][0])

    def count(self, collection: str) -> int:
        """See `Store`."""
        query = "select count(*) from vectors where collection = ?"
        return int(self._read(query, collection)[0][0])

    def scan(self, collection: str, *, after: str | None, limit: int) -> Rows:
        """See `Store`."""
        values = (collection, limit) if after is None else (collection, after, limit)
        rest = "" if after is None else "and id > ? "  # the id "" comes first
        query = f"select id, vector from vectors where collection = ? {rest}order by id limit ?"
        return self._rows(collection, self._read(query, *values))

    def ids(self, collection: str) -> list[str]:
        """Returns all ids."""
        query = "select id from vectors where collection = ? order by id"
        return [id for (id,) in self._read(query, collection)]

    def get(self, collection: str, ids: Sequence[str]) -> Rows:
        """See `Store`."""
        rows: list[tuple[str, bytes]] = []
        with self._open() as connection:
            for page in split(ids, MOST):
                marks = ", ".join("?" * len(page))
                query = f"select id, vector from vectors where collection = ? and id in ({marks})"
                rows += connection.execute(query, (collection, *page)).fetchall()
        return self._rows(collection, rows)

    def _rows(self, collection: str, rows: Sequence[tuple[str, bytes]]) -> Rows:
        vectors = [np.frombuffer(blob, dtype=np.float32) for _, blob in rows]
        dim = len(vectors[0]) if vectors else self.dim(collection)
        return Rows([id for id, _ in rows], as_matrix(vectors, dim), {})

    def search(self, collection: str, query: Matrix, k: int) -> SearchResults:
        """See `Store`; compares every vector."""
        ids, gallery = self._whole(collection)
        return search_exactly(query, ids, gallery, k)

    def _whole(self, collection: str) -> tuple[list[str], torch.Tensor]:
        """Returns a whole collection; reads it again after each write."""
        changes = self._changes()
        cached = self._cached.get(collection)
        if cached is None or cached[0] != changes:
            rows = self.scan(collection, after=None, limit=-1)
            cached = changes, rows.ids, torch.from_numpy(unit(rows.vectors))
            self._cached[collection] = cached
        return cached[1], cached[2]

    def _changes(self) -> str:
        """Number of writes so far, as text: only whether it is another one counts."""
        rows = self._read("select text from notes where key = 'changes'")
        return str(rows[0][0]) if rows else ""

    def create(self, collection: str, dim: int) -> None:
        """See `Store`."""
        with self._write() as connection:
            connection.execute("insert or ignore into collections values (?, ?)", (collection, dim))

    def upsert(self, collection: str, ids: Sequence[str], vectors: Matrix) -> None:
        """See `Store`."""
        dim = self.dim(collection)
        rows = as_matrix(vectors, dim)
        with self._write() as connection:
            connection.executemany(
                "insert or replace into vectors values (?, ?, ?)",
                [(collection, id, row.tobytes()) for id, row in zip(ids, rows, strict=True)],
            )

    def remove(self, collection: str, ids: Sequence[str]) -> None:
        """See `Store`."""
        with self._write() as connection:
            connection.executemany(
                "delete from vectors where collection = ? and id = ?",
                [(collection, id) for id in ids],
            )

    def drop(self, collection: str) -> None:
        """See `Store`."""
        with self._write() as connection:
            connection.execute("delete from vectors where collection = ?", (collection,))
            connection.execute("delete from collections where name = ?", (collection,))

    @contextmanager
    def _write(self) -> Iterator[sqlite3.Connection]:
        with self.transaction(), self._open(write=True) as connection:
            make_tables(connection)
            yield connection
            connection.execute(
                "insert into notes values ('changes', '1') "
                "on conflict (key) do update set text = cast(text as integer) + 1"
            )

    def notes(self) -> dict[str, str]:
        """See `Store`."""
        return dict(self._read("select key, text from notes where key <> 'changes'"))

    def read_note(self, key: str) -> str | None:
        """See `Store`."""
        rows = self._read("select text from notes where key = ?", key)
        return rows[0][0] if rows else None

    def note(self, key: str, text: str | None) -> None:
        """See `Store`."""
        with self._write() as connection:
            connection.execute("delete from notes where key = ?", (key,))
            if text is not None:
                connection.execute("insert into notes values (?, ?)", (key, text))


def create_like(path: Path, like: Path) -> None:
    """Creates an empty file that those may read who may read another, unless it exists."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    except OSError:  # it exists, or SQLite reports why it cannot be written
        return
    take_permissions(path, like)
    path.chmod(0o600 | (path.stat().st_mode & 0o666))


def make_tables(connection: sqlite3.Connection) -> None:
    """Creates the tables that do not exist."""
    for table in TABLES:
        connection.execute(f"create table if not exists {table}")


def search_exactly(
    query: Matrix, ids: Sequence[str], gallery: torch.Tensor, k: int
) -> SearchResults:
    """Returns the items with the largest cosine to each query; gallery rows have unit length."""
    if len(gallery) == 0:
        return SearchResults.of([[] for _ in query])
    places, cosines = nearest(torch.from_numpy(unit(query)), gallery, k)
    return SearchResults(
        [[ids[place] for place in row] for row in places.tolist()], cosines.tolist()
    )
