"""What we write beside a gallery that is a file: collections and notes in one SQLite file.

SQLite keeps every write whole: a kill, a full disk or a second writer leaves what was there.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np
import torch

from nobackfill.errors import GalleryError
from nobackfill.gallery.stores.base import Found, Matrix, Rows, as_matrix, unit
from nobackfill.ops.nearest import nearest

SCHEMA = (
    "create table if not exists collections (name text primary key, dim integer not null)",
    "create table if not exists vectors (collection text not null, id text not null, "
    "vector blob not null, primary key (collection, id)) without rowid",
    "create table if not exists notes (key text primary key, text text not null)",
)
PATIENCE = 60.0  # seconds that one writer waits for another
MOST = 500  # ids in one question; SQLite has a limit


class SideFile:
    """Collections and notes in a SQLite file, which is made when something is written first.

    Args:
        path: Of the file.
    """

    def __init__(self, path: Path):
        self.path = path
        self._cached: dict[str, tuple[int, list[str], torch.Tensor]] = {}

    @contextmanager
    def _open(self, *, write: bool = False) -> Iterator[sqlite3.Connection | None]:
        """A connection; None where nothing was ever written and nothing shall be."""
        if not write and not self.path.exists():
            yield None
            return
        try:
            with closing(sqlite3.connect(self.path, timeout=PATIENCE)) as connection, connection:
                connection.execute("pragma synchronous = full")
                question = "select 1 from sqlite_master where name = 'notes'"
                made = connection.execute(question).fetchall()
                yield connection if write or made else None
        except sqlite3.Error as error:
            remedy = (
                "It is not ours: move it away."
                if "not a database" in str(error)
                else "What was written before is whole; make room or end the other writer, and go "
                "on."
            )
            raise GalleryError(
                f"wanted to {'write' if write else 'read'} {self.path}, but {error}. {remedy}"
            ) from error

    def exists(self, collection: str) -> bool:
        """See `Store`."""
        return self._dim(collection) is not None

    def dim(self, collection: str) -> int:
        """See `Store`."""
        dim = self._dim(collection)
        if dim is None:
            raise GalleryError(
                f"wanted the collection `{collection}` in {self.path}; there is none."
            )
        return dim

    def _dim(self, collection: str) -> int | None:
        with self._open() as connection:
            if connection is None:
                return None
            row = connection.execute(
                "select dim from collections where name = ?", (collection,)
            ).fetchone()
            return None if row is None else int(row[0])

    def count(self, collection: str) -> int:
        """See `Store`."""
        with self._open() as connection:
            if connection is None:
                return 0
            question = "select count(*) from vectors where collection = ?"
            return int(connection.execute(question, (collection,)).fetchone()[0])

    def scan(self, collection: str, *, after: str | None, limit: int) -> Rows:
        """See `Store`."""
        with self._open() as connection:
            found = (
                []
                if connection is None
                else connection.execute(
                    "select id, vector from vectors where collection = ? and id > ? "
                    "order by id limit ?",
                    (collection, "" if after is None else after, limit),
                ).fetchall()
            )
        return self._rows(collection, found)

    def get(self, collection: str, ids: Sequence[str]) -> Rows:
        """See `Store`."""
        found: list[tuple[str, bytes]] = []
        with self._open() as connection:
            for first in range(0, len(ids) if connection else 0, MOST):
                some = ids[first : first + MOST]
                marks = ", ".join("?" * len(some))
                question = (
                    f"select id, vector from vectors where collection = ? and id in ({marks})"
                )
                assert connection is not None
                found += connection.execute(question, (collection, *some)).fetchall()
        return self._rows(collection, found)

    def _rows(self, collection: str, found: Sequence[tuple[str, bytes]]) -> Rows:
        vectors = [np.frombuffer(blob, dtype=np.float32) for _, blob in found]
        dim = len(vectors[0]) if vectors else self.dim(collection)
        return Rows([one for one, _ in found], as_matrix(vectors, dim), {})

    def search(self, collection: str, query: Matrix, k: int) -> Found:
        """See `Store`; every vector is looked at."""
        ids, gallery = self._whole(collection)
        return search_exactly(query, ids, gallery, k)

    def _whole(self, collection: str) -> tuple[list[str], torch.Tensor]:
        """All of a collection, read again where it has changed."""
        changed = self._changed()
        known = self._cached.get(collection)
        if known is None or known[0] != changed:
            rows = self.scan(collection, after=None, limit=-1)
            known = changed, rows.ids, torch.from_numpy(unit(rows.vectors))
            self._cached[collection] = known
        return known[1], known[2]

    def _changed(self) -> int:
        """A number that is another after each write."""
        with self._open() as connection:
            if connection is None:
                return 0
            row = connection.execute("select text from notes where key = 'changes'").fetchone()
            return int(row[0]) if row else 0

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
                [(collection, one, row.tobytes()) for one, row in zip(ids, rows, strict=True)],
            )

    def remove(self, collection: str, ids: Sequence[str]) -> None:
        """See `Store`."""
        with self._write() as connection:
            connection.executemany(
                "delete from vectors where collection = ? and id = ?",
                [(collection, one) for one in ids],
            )

    def drop(self, collection: str) -> None:
        """See `Store`."""
        with self._write() as connection:
            connection.execute("delete from vectors where collection = ?", (collection,))
            connection.execute("delete from collections where name = ?", (collection,))

    @contextmanager
    def _write(self) -> Iterator[sqlite3.Connection]:
        with self._open(write=True) as connection:
            assert connection is not None
            connection.execute("begin immediate")
            for statement in SCHEMA:
                connection.execute(statement)
            yield connection
            connection.execute(
                "insert into notes values ('changes', '1') "
                "on conflict (key) do update set text = cast(text as integer) + 1"
            )

    def notes(self) -> dict[str, str]:
        """See `Store`."""
        with self._open() as connection:
            if connection is None:
                return {}
            found = connection.execute("select key, text from notes where key <> 'changes'")
            return dict(found.fetchall())

    def note(self, key: str, text: str | None) -> None:
        """See `Store`."""
        with self._write() as connection:
            connection.execute("delete from notes where key = ?", (key,))
            if text is not None:
                connection.execute("insert into notes values (?, ?)", (key, text))


def search_exactly(query: Matrix, ids: Sequence[str], gallery: torch.Tensor, k: int) -> Found:
    """The items of the largest cosine to each query.

    Args:
        query: Of any length.
        ids: Of the gallery's rows.
        gallery: Of unit length.
        k: How many.
    """
    if len(gallery) == 0:
        return Found([[] for _ in query], [[] for _ in query])
    found, cosines = nearest(torch.from_numpy(unit(query)), gallery, k)
    return Found(
        [[ids[place] for place in row] for row in found.tolist()],
        cosines.tolist(),
    )
