"""The owner's table and the tables of new vectors, as PostgreSQL's catalog describes them."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, LiteralString

from psycopg.sql import SQL, Composed

from nobackfill.core.suggest import suggest
from nobackfill.errors import GalleryError
from nobackfill.gallery.stores.base import MARK, notes_of
from nobackfill.gallery.stores.pgvector.connection import IDLE, Answer, Database, Link
from nobackfill.gallery.stores.pgvector.sql import LOCK, TABLES
from nobackfill.gallery.stores.pgvector.table import Column, Table, read_table

Statement = LiteralString | bytes | SQL | Composed


class Catalog:
    """Looks tables up once and forgets them after an error, as somebody may have changed them.

    `table` is the name of the owner's table in `schema` (None for the search path), and `columns`
    are the names of its columns of ids and of vectors.
    """

    def __init__(
        self, database: Database, schema: str | None, table: str, columns: tuple[str, str]
    ):
        self.database, self.schema, self.table, self.columns = database, schema, table, columns
        self.main = f"{schema}.{table}" if schema else table
        self._tables: dict[str, Table] = {}
        self.run("connect", lambda link: None, retry=False)
        self.owner = self._find_owner()
        self.schema = self.owner.schema

    def run(self, action: str, work: Callable[[Link], Answer], *, retry: bool = True) -> Answer:
        """Runs `work` with the connection; see `Database.run`."""
        try:
            return self.database.run(action, work, retry=retry)
        except GalleryError:
            self._tables.clear()  # somebody may have changed the tables
            raise

    def exclusively(self, action: str, work: Callable[[], Answer], *, retry: bool = True) -> Answer:
        """Runs `work` in a transaction that has the lock of this gallery; see `Store`."""
        name = f"nobackfill {self.owner.schema}.{self.table}"

        def locked(link: Link) -> Answer:
            if link.info.transaction_status != IDLE:
                return work()  # within another one, which has the lock
            try:
                with link.transaction():
                    link.execute(LOCK, (name,))
                    return work()
            except BaseException:
                self._tables.clear()  # tables of the transaction are gone
                raise

        return self.run(action, locked, retry=retry)

    def query(
        self, action: str, statement: Statement, values: tuple[Any, ...] = ()
    ) -> list[tuple[Any, ...]]:
        """Runs one statement and returns its rows, if it returns any."""

        def send(link: Link) -> list[tuple[Any, ...]]:
            cursor = link.execute(statement, values, binary=True)
            return cursor.fetchall() if cursor.description else []

        return self.run(action, send)

    def _find_owner(self) -> Table:
        """Returns the owner's table; it may lack vectors only if new ones are stored."""
        table = self.find(self.main)
        if table is not None and table.vector is not None:
            return table
        names = [row[0] for row in self.query("list the tables", TABLES)]
        if table is None:
            others = [name for name in names if MARK not in name]
            raise GalleryError(
                f"No table `{self.main}` at {self.database.shown}: there is none. "
                f"{suggest(self.main, others)[:300]}"
            )
        new = {name.removeprefix(f"{self.schema}.") for name in names} - {notes_of(self.table)}
        if not any(name.startswith(f"{self.table}{MARK}") for name in new):
            raise GalleryError(
                f"No column `{self.columns[1]}` of vectors in `{self.main}` at "
                f"{self.database.shown}. Set the name of the column with ?vector=."
            )
        return table  # its old vectors were removed, and new ones are in use

    def find(self, collection: str) -> Table | None:
        """Returns a table of vectors as first looked up; None if it does not exist."""
        is_new = collection.startswith(f"{self.main}{MARK}") and collection != notes_of(self.main)
        if collection in self._tables or not (is_new or collection == self.main):
            return self._tables.get(collection)
        columns = ("id", "vector") if is_new else self.columns
        table = self.run(
            "look up the table",
            lambda link: read_table(link, self.schema, self.name_of(collection), *columns),
        )
        if table is not None:
            self._tables[collection] = replace(table, owner=self.owner) if is_new else table
        return self._tables.get(collection)

    def get(self, collection: str) -> tuple[Table, Column]:
        """Returns a table and its column of vectors; raises if either does not exist."""
        table = self.find(collection)
        if table is None or table.vector is None:
            raise GalleryError(
                f"No vectors of `{collection}` at {self.database.shown}: they were removed, or "
                f"never made."
            )
        return table, table.vector

    def remember_dim(self, collection: str, dim: int) -> None:
        """Stores the number of dimensions of a column that does not declare it."""
        table, vector = self.get(collection)
        self._tables[collection] = replace(table, vector=replace(vector, size=dim))

    def forget(self, collection: str) -> None:
        """Looks the table up again next time."""
        self._tables.pop(collection, None)

    def name_of(self, collection: str) -> str:
        """Returns the name of a collection's table, without the schema."""
        return f"{self.table}{collection.removeprefix(self.main)}"
