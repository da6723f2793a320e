"""A gallery in PostgreSQL with pgvector: new vectors go into tables beside the owner's.

An item that its owner deletes vanishes from ours as well, and none is ever written for an item
that is not in the owner's table.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import isnan
from typing import Any

import numpy as np
from psycopg import Cursor, errors, sql

from nobackfill.core.config import suggest
from nobackfill.errors import GalleryError
from nobackfill.gallery.stores.base import MARK, Found, Index, Matrix, Rows, Store
from nobackfill.gallery.stores.client import no_index
from nobackfill.gallery.stores.pgvector.connection import Answer, Database, Link
from nobackfill.gallery.stores.pgvector.dsn import LIBPQ, read_parameters, read_place
from nobackfill.gallery.stores.pgvector.index import (
    PostgresIndex,
    build,
    of_vectors,
    read_indexes,
    telling,
)
from nobackfill.gallery.stores.pgvector.sql import (
    COUNT,
    CREATE,
    DIM,
    FIND_1000,
    FIND_MORE,
    FIRST,
    GET,
    KEYED,
    MANY,
    NEXT,
    NOTE,
    NOTES,
    REFER,
    REMOVE,
    SEARCH,
    TABLES,
    UPSERT,
    statement,
)
from nobackfill.gallery.stores.pgvector.table import (
    TABLE,
    Column,
    Key,
    Table,
    as_key,
    check_name,
    notes_of,
    quoted,
    read_table,
)
from nobackfill.gallery.stores.uri import Uri, check_options

PAGE = 4096  # vectors written by one statement


class PgvectorStore(Store):
    """A table with a column of vectors, in PostgreSQL with pgvector.

    Items without a vector are left out. Ids must be unique, or pages lose some; where no unique
    index says so, or we may not refer to the owner's table, ours do not refer to it.

    Args:
        uri: Such as `pgvector://ann@db/shop/items?sslmode=require&vector=embedding`.
        read_only: Whether every write is refused, by the server as well.
    """

    def __init__(self, uri: Uri, *, read_only: bool = False):
        check_options(uri, "id", "vector", *LIBPQ)
        database, self.schema, self.table = read_place(uri)
        main = f"{self.schema}.{self.table}" if self.schema else self.table
        super().__init__(main, uri.shown, read_only=read_only)
        self.columns = uri.options.get("id", "id"), uri.options.get("vector", "vector")
        parameters = read_parameters(uri) | {"dbname": database}
        self.database = Database(parameters, uri.shown, read_only=read_only)
        self._known: dict[str, Table] = {}
        try:
            self.owner = self._open()
        except BaseException:
            self.close()
            raise
        self.schema = self.owner.schema
        self.exact = not (self.owner.vector and self.owner.vector.indexed)

    def _open(self) -> Table:
        self._ask("connect", lambda link: None, again=False)
        table = self._find(self.main)
        if table is not None and table.vector is not None:
            return table
        names = self._ask("list the tables", lambda link: [row[0] for row in link.execute(TABLES)])
        if table is None:
            others = [name for name in names if MARK not in name]
            raise GalleryError(
                f"wanted the table `{self.main}` at {self.shown}, but there is none. "
                f"{suggest(self.main, others)[:300]}"
            )
        mine = {name.removeprefix(f"{self.schema}.") for name in names} - {notes_of(self.table)}
        if not any(name.startswith(f"{self.table}{MARK}") for name in mine):
            raise GalleryError(
                f"wanted a column `{self.columns[1]}` of vectors in `{self.main}` at {self.shown}, "
                f"but there is none. Name the column behind ?vector=."
            )
        return table  # its old vectors were removed, and ours are in use

    def _ask(self, wanted: str, work: Callable[[Link], Answer], *, again: bool = True) -> Answer:
        try:
            return self.database.ask(wanted, work, again=again)
        except GalleryError:
            self._known.clear()  # somebody may have changed the tables
            raise

    def _find(self, collection: str) -> Table | None:
        """A table of vectors, as it was when first asked for; None where there is none."""
        mine = collection.startswith(f"{self.main}{MARK}") and collection != notes_of(self.main)
        if collection in self._known or not (mine or collection == self.main):
            return self._known.get(collection)
        columns = ("id", "vector") if mine else self.columns
        table = self._ask(
            "look at the table",
            lambda link: read_table(link, self.schema, self._name(collection), *columns),
        )
        if table is not None:
            self._known[collection] = replace(table, owner=self.owner) if mine else table
        return self._known.get(collection)

    def _name(self, collection: str) -> str:
        return f"{self.table}{collection.removeprefix(self.main)}"

    def _table(self, collection: str) -> tuple[Table, Column]:
        """A table that must be there, and its column of vectors."""
        table = self._find(collection)
        if table is None or table.vector is None:
            raise GalleryError(
                f"wanted the vectors of `{collection}` at {self.shown}; there are none. "
                f"They were removed, or never made."
            )
        return table, table.vector

    def exists(self, collection: str) -> bool:
        """See `Store`; not where old vectors were removed."""
        self._known.pop(collection, None)
        table = self._find(collection)
        return table is not None and table.vector is not None

    def count(self, collection: str) -> int:
        """See `Store`."""
        question = statement(COUNT, self._table(collection)[0])
        return self._ask("count", lambda link: int(one(link.execute(question, ()))))

    def dim(self, collection: str) -> int:
        """See `Store`."""
        table, vector = self._table(collection)
        if vector.size < 0:  # the column does not say: its first vector does
            question = statement(DIM, table)
            found = self._ask("look at a vector", lambda link: one(link.execute(question, ())))
            if found is None:
                raise GalleryError(
                    f"wanted vectors in `{collection}` at {self.shown}; there are none yet, and "
                    f"the column does not say of how many dimensions."
                )
            vector = replace(vector, size=found)
            self._known[collection] = replace(table, vector=vector)
        return vector.size

    def scan(self, collection: str, *, after: str | None = None, limit: int = 1000) -> Rows:
        """See `Store`."""
        table, _ = self._table(collection)
        if after is None:
            return self._rows(collection, statement(FIRST, table), (limit,))
        key = as_key(table.id.kind, after)
        if key is None:
            raise GalleryError(
                f"wanted to go on after an id of type {table.id.kind} in `{collection}`, but got "
                f"{after!r}. Begin again without one."
            )
        return self._rows(collection, statement(NEXT, table), (key, limit))

    def get(self, collection: str, ids: Sequence[str]) -> Rows:
        """See `Store`."""
        table, _ = self._table(collection)
        return self._rows(collection, statement(GET, table), (keys_of(table, ids),))

    def _rows(self, collection: str, question: bytes, values: tuple[Any, ...]) -> Rows:
        table, vector = self._table(collection)
        found = self._ask(
            "read", lambda link: link.execute(question, values, binary=True).fetchall()
        )
        if not found:
            return Rows([], np.empty((0, self.dim(collection)), np.float32), {})
        ids, vectors, *others = zip(*found, strict=True)
        columns = {
            column.name: list(values) for column, values in zip(table.others, others, strict=True)
        }
        return Rows(
            [str(key) for key in ids], unpack(vectors, half=vector.kind == "halfvec"), columns
        )

    def search(self, collection: str, query: Matrix, k: int) -> Found:
        """See `Store`; several queries go in one round trip."""
        table, vector = self._table(collection)
        self._check_dim(collection, query)
        question = statement(SEARCH, table, k)

        def ask_all(link: Link) -> list[list[tuple[Any, ...]]]:
            if len(query) == 1:
                return [link.execute(question, (query[0],), binary=True).fetchall()]
            with link.pipeline():
                cursors = [link.execute(question, (row,), binary=True) for row in query]
                return [cursor.fetchall() for cursor in cursors]

        def ask_for_many(link: Link) -> list[list[tuple[Any, ...]]]:
            with link.transaction():
                link.execute(FIND_MORE if self.database.iterates else FIND_1000)
                return ask_all(link)

        found = self._ask("search", ask_for_many if vector.indexed and k > MANY else ask_all)
        if k > MANY and not vector.indexed and any(len(rows) < k for rows in found):
            self._known.pop(collection, None)  # somebody may have built an index meanwhile
            if self._table(collection)[1].indexed:
                return self.search(collection, query, k)
        if vector.indexed:  # which may have them nearly in order
            found = [sorted(rows, key=lambda row: row[1]) for rows in found]
        return Found(
            [[str(key) for key, _ in rows] for rows in found],
            [[0.0 if isnan(away) else 1.0 - away for _, away in rows] for rows in found],
        )

    def _check_dim(self, collection: str, vectors: Matrix) -> None:
        dim = self.dim(collection)
        if vectors.shape[1] != dim:
            raise GalleryError(
                f"wanted vectors of {dim} dimensions, as `{collection}` at {self.shown} has them, "
                f"but got {vectors.shape[1]}. Use the model that its vectors are of."
            )

    # Writing.

    def create(self, collection: str, dim: int) -> None:
        """See `Store`."""
        self.check_writable(collection)
        name = self._name(collection)
        check_name(name, self.table)
        mine, owner = quoted(self.owner.schema, name), self.owner
        where = {"table": name, "schema": owner.schema}

        def work(link: Link) -> None:
            with link.transaction():
                if link.execute(TABLE, where).fetchone() is not None:
                    return
                made = CREATE.format(mine, owner.id.quoted, sql.Literal(dim), owner.quoted)
                link.execute(made, ())
                link.execute(KEYED.format(mine), ())
                if owner.id.referable:
                    link.execute(REFER.format(mine, owner.quoted, owner.id.quoted), ())

        self._ask(f"make the table `{name}`", work)
        self._known.pop(collection, None)

    def upsert(self, collection: str, ids: Sequence[str], vectors: Matrix) -> None:
        """See `Store`; items that are not in the owner's table are left out."""
        self.check_writable(collection)
        self._check_dim(collection, vectors)
        table, _ = self._table(collection)
        place_of = {as_key(table.id.kind, one): place for place, one in enumerate(ids)}
        place_of.pop(None, None)
        keys, places = list(place_of), list(place_of.values())
        order = statement(UPSERT, table)

        def work(link: Link) -> None:
            with link.transaction():
                for first in range(0, len(keys), PAGE):
                    some = slice(first, first + PAGE)
                    link.execute(order, (keys[some], list(vectors[places[some]])))

        self._ask("write vectors", work)

    def remove(self, collection: str, ids: Sequence[str]) -> None:
        """See `Store`."""
        self.check_writable(collection)
        table, _ = self._table(collection)
        order, keys = statement(REMOVE, table), keys_of(table, ids)
        self._ask("remove vectors", lambda link: link.execute(order, (keys,)))

    def drop(self, collection: str) -> None:
        """See `Store`."""
        self.check_writable(collection)
        name = self._name(collection)
        check_name(name, self.table)
        order = sql.SQL("drop table if exists {}").format(quoted(self.owner.schema, name))
        self._ask(f"remove the table `{name}`", lambda link: link.execute(order, ()))
        self._known.pop(collection, None)

    # An index.

    def index_of(self, collection: str) -> Index | None:
        """See `Store`."""
        whole = [one for one in self._indexes(collection) if one.valid]
        return Index(str(whole[0])) if whole else None

    def _indexes(self, collection: str) -> list[PostgresIndex]:
        table = self._find(collection)
        if table is None or table.vector is None:
            return []
        vector = table.vector
        return self._ask("look at the indexes", lambda link: read_indexes(link, table, vector))

    def wanted_index(self, collection: str) -> Index | None:
        """See `Store`."""
        wanted = self._like_owners()
        built = any(one.valid and one.like(wanted) for one in self._indexes(collection))
        return Index(str(wanted), 0 if built else self.count(collection))

    def _like_owners(self) -> PostgresIndex:
        whole = [one for one in self._indexes(self.main) if one.valid]
        if not whole:
            raise no_index(self.main, self.shown)
        return of_vectors(whole[0])

    def index(self, collection: str, *, watch: Callable[[str], None] = lambda line: None) -> None:
        """See `Store`; others read and write meanwhile."""
        self.check_writable(collection)
        wanted, (table, vector) = self._like_owners(), self._table(collection)
        watch(f"building {wanted}")
        building = self.database.another()
        try:
            with telling(self.database, table, watch):
                building.ask("build the index", lambda link: build(link, table, vector, wanted))
        finally:
            building.close()
            self._known.pop(collection, None)

    def retire(self) -> None:
        """See `Store`."""
        self.check_may_write()
        table, vector = self._table(self.main)
        order = sql.SQL("alter table {} drop column {}").format(table.quoted, vector.quoted)
        self._ask("remove the old vectors", lambda link: link.execute(order, ()), again=False)
        self._known.clear()

    # Notes.

    def notes(self) -> dict[str, str]:
        """See `Store`; none where we may not read them."""
        question = sql.SQL("select key, text from {}").format(self._notes())

        def work(link: Link) -> dict[str, str]:
            try:
                return dict(link.execute(question, ()).fetchall())
            except (errors.UndefinedTable, errors.InsufficientPrivilege):
                return {}

        return self._ask("read the notes", work)

    def note(self, key: str, text: str | None) -> None:
        """See `Store`."""
        self.check_may_write()
        check_name("", self.table)
        notes = self._notes()
        where = {"table": notes_of(self.table), "schema": self.owner.schema}

        def work(link: Link) -> None:
            with link.transaction():
                if link.execute(TABLE, where).fetchone() is None:
                    link.execute(NOTES.format(notes), ())
                if text is None:
                    link.execute(sql.SQL("delete from {} where key = %s").format(notes), (key,))
                else:
                    link.execute(NOTE.format(notes), (key, text))

        self._ask("write a note", work)

    def _notes(self) -> sql.Identifier:
        return quoted(self.owner.schema, notes_of(self.table))

    def close(self) -> None:
        """See `Store`."""
        self.database.close()


def keys_of(table: Table, ids: Sequence[str]) -> list[Key]:
    """Those ids that the table's column can have."""
    keys = (as_key(table.id.kind, one) for one in ids)
    return [key for key in keys if key is not None]


def unpack(vectors: Sequence[bytes], *, half: bool) -> Matrix:
    """Vectors as pgvector sends them, as one matrix: 4 bytes of header, then big-endian numbers."""
    length = len(vectors[0])
    if any(len(vector) != length for vector in vectors):
        raise GalleryError("wanted vectors of one length, but the column has several.")
    kind, size = (">f2", 2) if half else (">f4", 4)
    layout = np.dtype([("header", ">u4"), ("numbers", kind, ((length - 4) // size,))])
    return np.frombuffer(b"".join(vectors), layout)["numbers"].astype(np.float32)


def one(cursor: Cursor[tuple[Any, ...]]) -> Any:
    """The only value of an answer; None where there is none."""
    row = cursor.fetchone()
    return None if row is None else row[0]
