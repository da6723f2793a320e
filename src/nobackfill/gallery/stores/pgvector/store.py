"""A gallery in PostgreSQL with pgvector; new vectors go into separate tables.

An item that the owner deletes disappears from the new tables too, and no vector is written for an
item that is not in the owner's table.
"""

from collections.abc import Callable, Sequence
from math import isnan
from typing import Any

import numpy as np
from psycopg import errors
from psycopg.sql import SQL, Identifier, Literal

from nobackfill.errors import GalleryError
from nobackfill.gallery.stores.base import (
    MARK,
    Answer,
    Index,
    Matrix,
    Rows,
    SearchResults,
    Store,
    notes_of,
)
from nobackfill.gallery.stores.client import check_dim, no_index
from nobackfill.gallery.stores.pgvector import sql
from nobackfill.gallery.stores.pgvector.catalog import Catalog
from nobackfill.gallery.stores.pgvector.connection import Database, Link
from nobackfill.gallery.stores.pgvector.dsn import LIBPQ, read_parameters, read_place
from nobackfill.gallery.stores.pgvector.index import (
    PostgresIndex,
    build,
    for_vectors,
    read_indexes,
    reporting_progress,
)
from nobackfill.gallery.stores.pgvector.sql import statement
from nobackfill.gallery.stores.pgvector.table import (
    as_key,
    check_name,
    find_table,
    keys_of,
    quoted,
    unpack,
)
from nobackfill.gallery.stores.uri import Uri, check_options

PAGE = 4096  # vectors written by one statement


class PgvectorStore(Store):
    """A table with a column of vectors, in PostgreSQL with pgvector.

    Items without a vector are left out. Ids must be unique, or pages lose items. New tables refer
    to the owner's table where a unique index on its ids and the privileges allow it.

    Args:
        uri: URI such as `pgvector://ann@db/shop/items?sslmode=require&vector=embedding`.
        read_only: Whether every write is refused, by the server as well.
    """

    atomic = True

    def __init__(self, uri: Uri, *, read_only: bool):
        check_options(uri, "id", "vector", *LIBPQ)
        name, schema, table = read_place(uri)
        parameters = read_parameters(uri) | {"dbname": name}
        columns = uri.options.get("id", "id"), uri.options.get("vector", "vector")
        self.database = Database(parameters, uri.shown, read_only=read_only)
        try:
            self._catalog = Catalog(self.database, schema, table, columns)
        except BaseException:
            self.close()
            raise
        super().__init__(self._catalog.main, uri.shown, read_only=read_only)
        self.owner = self._catalog.owner
        self.exact = not (self.owner.vector and self.owner.vector.indexed)

    # Reading.

    def exists(self, collection: str) -> bool:
        """See `Store`; False for a table whose old vectors were removed."""
        self._catalog.forget(collection)
        table = self._catalog.find(collection)
        return table is not None and table.vector is not None

    def count(self, collection: str) -> int:
        """See `Store`."""
        query = statement(sql.COUNT, self._catalog.get(collection)[0])
        return int(self._catalog.query("count", query)[0][0])

    def covered(self, collection: str) -> int:
        """See `Store`."""
        if collection == self.main:
            return self.count(collection)
        query = statement(sql.COVERED, self._catalog.get(collection)[0])
        return int(self._catalog.query("count", query)[0][0])

    def dim(self, collection: str) -> int:
        """See `Store`."""
        table, vector = self._catalog.get(collection)
        if vector.size >= 0:
            return vector.size
        # The column does not declare its dimensions: take those of the first vector.
        rows = self._catalog.query("read a vector", statement(sql.DIM, table))
        if not rows:
            raise GalleryError(
                f"`{collection}` at {self.shown} has no vectors yet, and its column does not "
                f"declare its dimensions. Write vectors first."
            )
        dim = int(rows[0][0])
        self._catalog.remember_dim(collection, dim)
        return dim

    def scan(self, collection: str, *, after: str | None = None, limit: int = 1000) -> Rows:
        """See `Store`."""
        table, _ = self._catalog.get(collection)
        if after is None:
            return self._rows(collection, statement(sql.FIRST, table), (limit,))
        key = as_key(table.id.kind, after)
        if key is None:
            raise GalleryError(
                f"Cannot continue after the id {after!r}: ids of `{collection}` have the type "
                f"{table.id.kind}. Start again without an id."
            )
        return self._rows(collection, statement(sql.NEXT, table), (key, limit))

    def get(self, collection: str, ids: Sequence[str]) -> Rows:
        """See `Store`."""
        table, _ = self._catalog.get(collection)
        return self._rows(collection, statement(sql.GET, table), (keys_of(table, ids),))

    def _rows(self, collection: str, query: bytes, values: tuple[Any, ...]) -> Rows:
        table, vector = self._catalog.get(collection)
        rows = self._catalog.query("read", query, values)
        if not rows:
            return Rows([], np.empty((0, self.dim(collection)), np.float32), {})
        ids, vectors, *others = zip(*rows, strict=True)
        columns = {
            column.name: list(values) for column, values in zip(table.others, others, strict=True)
        }
        matrix = unpack(vectors, half=vector.kind == "halfvec")
        return Rows([str(key) for key in ids], matrix, columns)

    def search(self, collection: str, query: Matrix, k: int) -> SearchResults:
        """See `Store`; several queries go in one round trip."""
        table, vector = self._catalog.get(collection)
        check_dim(query, self.dim(collection), collection)
        select = statement(sql.SEARCH, table, k)

        def search_all(link: Link) -> list[list[tuple[Any, ...]]]:
            if len(query) == 1:
                return [link.execute(select, (query[0],), binary=True).fetchall()]
            with link.pipeline():
                cursors = [link.execute(select, (row,), binary=True) for row in query]
                return [cursor.fetchall() for cursor in cursors]

        def search_deep(link: Link) -> list[list[tuple[Any, ...]]]:
            with link.transaction():
                link.execute(sql.FIND_MORE if self.database.iterates else sql.FIND_1000)
                return search_all(link)

        # An index returns at most MANY items unless its setting lets it search deeper.
        deep = vector.indexed and k > sql.MANY
        results = self._catalog.run("search", search_deep if deep else search_all)

        # Too few results may come from an index that was built meanwhile.
        if k > sql.MANY and not vector.indexed and any(len(rows) < k for rows in results):
            self._catalog.forget(collection)
            if self._catalog.get(collection)[1].indexed:
                return self.search(collection, query, k)

        if vector.indexed:  # indexes return nearly sorted results
            results = [sorted(rows, key=lambda row: row[1]) for rows in results]
        return SearchResults.of(
            [(str(key), 0.0 if isnan(away) else 1.0 - away) for key, away in rows]
            for rows in results
        )

    # Writing.

    def exclusively(self, action: str, work: Callable[[], Answer], *, retry: bool = True) -> Answer:
        """See `Store`; one transaction with an advisory lock."""
        self.check_may_write()
        return self._catalog.exclusively(action, work, retry=retry)

    def new_collections(self) -> list[str]:
        """See `Store`."""
        start = f"{self._catalog.table}{MARK}"
        rows = self._catalog.query("list the tables", sql.NEW_TABLES, (self.owner.schema, start))
        names = {name for (name,) in rows} - {notes_of(self._catalog.table)}
        return sorted(f"{self.main}{name.removeprefix(self._catalog.table)}" for name in names)

    def create(self, collection: str, dim: int) -> None:
        """See `Store`."""
        self.check_writable(collection)
        name = self._catalog.name_of(collection)
        check_name(name, self._catalog.table)
        table, owner = quoted(self.owner.schema, name), self.owner

        def create(link: Link) -> None:
            with link.transaction():
                if find_table(link, owner.schema, name):
                    return
                columns = owner.id.quoted, Literal(dim), owner.quoted
                link.execute(sql.CREATE.format(table, *columns), ())
                link.execute(sql.KEYED.format(table), ())
                if owner.id.referable:
                    link.execute(sql.REFER.format(table, owner.quoted, owner.id.quoted), ())

        self._catalog.run(f"create the table `{name}`", create)
        self._catalog.forget(collection)

    def upsert(self, collection: str, ids: Sequence[str], vectors: Matrix) -> None:
        """See `Store`; items that are not in the owner's table are left out."""
        self.check_writable(collection)
        check_dim(vectors, self.dim(collection), collection)
        table, _ = self._catalog.get(collection)
        row_of = {as_key(table.id.kind, id): row for row, id in enumerate(ids)}
        row_of.pop(None, None)
        keys, rows = list(row_of), list(row_of.values())
        insert = statement(sql.UPSERT, table)

        def write(link: Link) -> None:
            with link.transaction():
                for first in range(0, len(keys), PAGE):
                    page = slice(first, first + PAGE)
                    link.execute(insert, (keys[page], list(vectors[rows[page]])))

        self._catalog.run("write vectors", write)

    def remove(self, collection: str, ids: Sequence[str]) -> None:
        """See `Store`."""
        self.check_writable(collection)
        table, _ = self._catalog.get(collection)
        delete = statement(sql.REMOVE, table)
        self._catalog.query("remove vectors", delete, (keys_of(table, ids),))

    def drop(self, collection: str) -> None:
        """See `Store`."""
        self.check_writable(collection)
        name = self._catalog.name_of(collection)
        check_name(name, self._catalog.table)
        drop = SQL("drop table if exists {}").format(quoted(self.owner.schema, name))
        self._catalog.query(f"remove the table `{name}`", drop)
        self._catalog.forget(collection)

    def retire(self, collection: str) -> None:
        """See `Store`; the table is locked for writing while its items are counted."""
        self.check_may_write()
        table, vector = self._catalog.get(self.main)
        lock = SQL("lock table {} in share mode").format(table.quoted)
        drop = SQL("alter table {} drop column {}").format(table.quoted, vector.quoted)

        def remove() -> None:
            self._catalog.query("lock the table", lock)
            self.check_is_covered(collection)
            self._catalog.query("remove the old vectors", drop)

        self.exclusively("remove the old vectors", remove, retry=False)
        self._catalog.forget(self.main)

    # Index.

    def index_of(self, collection: str) -> Index | None:
        """See `Store`."""
        indexes = self._valid_indexes(collection)
        return Index(str(indexes[0])) if indexes else None

    def _valid_indexes(self, collection: str) -> list[PostgresIndex]:
        table = self._catalog.find(collection)
        if table is None or table.vector is None:
            return []
        vector = table.vector
        indexes = self._catalog.run(
            "read the indexes", lambda link: read_indexes(link, table, vector)
        )
        return [index for index in indexes if index.valid]

    def wanted_index(self, collection: str) -> Index | None:
        """See `Store`."""
        target = self._target_index()
        built = any(index.like(target) for index in self._valid_indexes(collection))
        return Index(str(target), 0 if built else self.count(collection))

    def _target_index(self) -> PostgresIndex:
        """Returns the owner's index, for a column of the type vector."""
        indexes = self._valid_indexes(self.main)
        if not indexes:
            raise no_index(self.main, self.shown)
        return for_vectors(indexes[0])

    def index(self, collection: str, *, watch: Callable[[str], None] = lambda line: None) -> None:
        """See `Store`; others can read and write meanwhile."""
        self.check_writable(collection)
        target, (table, vector) = self._target_index(), self._catalog.get(collection)
        watch(f"building {target}")
        builder = self.database.duplicate()
        try:
            with reporting_progress(self.database, table, watch):
                builder.run("build the index", lambda link: build(link, table, vector, target))
        finally:
            builder.close()
            self._catalog.forget(collection)

    # Notes.

    def notes(self) -> dict[str, str]:
        """See `Store`."""
        return self._read_notes(SQL("select key, text from {}"))

    def read_note(self, key: str) -> str | None:
        """See `Store`."""
        return self._read_notes(SQL("select key, text from {} where key = %s"), key).get(key)

    def _read_notes(self, query: SQL, *values: str) -> dict[str, str]:
        def read(link: Link) -> dict[str, str]:
            try:
                with link.transaction():  # within another one, an error does not end that
                    return dict(link.execute(query.format(self._notes), values).fetchall())
            except errors.UndefinedTable:
                return {}

        return self._catalog.run("read the notes", read)

    def note(self, key: str, text: str | None) -> None:
        """See `Store`."""
        self.check_may_write()
        check_name("", self._catalog.table)

        def write(link: Link) -> None:
            with link.transaction():
                if not find_table(link, self.owner.schema, notes_of(self._catalog.table)):
                    link.execute(sql.NOTES.format(self._notes), ())
                if text is None:
                    link.execute(SQL("delete from {} where key = %s").format(self._notes), (key,))
                else:
                    link.execute(sql.NOTE.format(self._notes), (key, text))

        self._catalog.run("write a note", write)

    @property
    def _notes(self) -> Identifier:
        return quoted(self.owner.schema, notes_of(self._catalog.table))

    def close(self) -> None:
        """See `Store`."""
        self.database.close()
