"""Indexes of pgvector: what a table has, and how the same is built beside readers and writers."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import psycopg
from psycopg import sql

from nobackfill.errors import GalleryError
from nobackfill.gallery.stores.pgvector.connection import Database, Link
from nobackfill.gallery.stores.pgvector.table import TABLE, Column, Table, quoted

INDEXES = """
select c.relname, m.amname, s.nspname, o.opcname, coalesce(c.reloptions, '{}'), i.indisvalid
from pg_index i join pg_class c on c.oid = i.indexrelid join pg_am m on m.oid = c.relam
join pg_opclass o on o.oid = i.indclass[0] join pg_namespace s on s.oid = o.opcnamespace
join pg_attribute a on a.attrelid = i.indrelid and a.attnum = i.indkey[0]
join pg_class t on t.oid = i.indrelid join pg_namespace n on n.oid = t.relnamespace
where n.nspname = %s and t.relname = %s and a.attname = %s and m.amname in ('hnsw', 'ivfflat')
and i.indnkeyatts = 1 and i.indpred is null and i.indexprs is null
order by o.opcname like '%%cosine%%' desc, i.indisvalid desc, c.relname
"""
BUILD = sql.SQL("create index concurrently on {} using {} ({} {})")
DROP = sql.SQL("drop index concurrently if exists {}")
TURN = "select pg_try_advisory_lock(%s)"
FAR = """
select phase, round(100.0 * blocks_done / nullif(blocks_total, 0))
from pg_stat_progress_create_index where relid = %s
"""
OURS = 0x6E6F6266 << 32  # with a table's number: who builds on it, among all of PostgreSQL's locks
PAUSE = 0.2  # seconds between two looks at who builds
SECOND = 1.0  # between two looks at how far it is


@dataclass(frozen=True)
class PostgresIndex:
    """An index of pgvector on one whole column.

    Attributes:
        name: In the schema of its table.
        method: Such as `hnsw`.
        operators: The operator class, behind its schema.
        options: Such as `m=16`.
        valid: Whether it was built to its end.
    """

    name: str
    method: str
    operators: tuple[str, str]
    options: tuple[str, ...]
    valid: bool

    def like(self, other: "PostgresIndex") -> bool:
        """Whether it is of the kind of another one."""
        return (self.method, self.operators, sorted(self.options)) == (
            other.method,
            other.operators,
            sorted(other.options),
        )

    def __str__(self) -> str:
        return f"{self.method} ({', '.join((self.operators[1], *self.options))})"


def read_indexes(link: Link, table: Table, column: Column) -> list[PostgresIndex]:
    """Those of a column of vectors: of cosines first, and whole ones first."""
    return [
        PostgresIndex(name, method, (schema, operators), tuple(options), valid)
        for name, method, schema, operators, options, valid in link.execute(
            INDEXES, (table.schema, table.name, column.name)
        )
    ]


def of_vectors(index: PostgresIndex) -> PostgresIndex:
    """The same index for a column of the type vector, which ours are, where it is of halves."""
    schema, operators = index.operators
    named = "vector_" + operators.removeprefix("halfvec_").removeprefix("vector_")
    return PostgresIndex(index.name, index.method, (schema, named), index.options, index.valid)


def build(link: Link, table: Table, column: Column, wanted: PostgresIndex) -> None:
    """Builds an index while others read and write the table; nothing where it is there.

    PostgreSQL leaves one that was interrupted, not valid and of no use: it is removed. Where the
    process that began one was killed its server builds on, and is waited for.

    Args:
        link: Of its own, as it is told to wait for others as long as that takes.
        table: Of ours.
        column: Of its vectors.
        wanted: Of which kind.
    """
    for limit in ("lock_timeout", "statement_timeout"):
        link.execute(f"set {limit} = 0")
    await_others(link, table)
    drop_broken(link, table, column)
    if any(one.like(wanted) for one in read_indexes(link, table, column)):
        return
    order = BUILD.format(
        table.quoted, quoted(wanted.method), column.quoted, quoted(*wanted.operators)
    )
    if wanted.options:
        options = (one.partition("=") for one in wanted.options)
        told = (sql.SQL("{} = {}").format(quoted(k), sql.Literal(v)) for k, _, v in options)
        order = sql.SQL("{} with ({})").format(order, sql.SQL(", ").join(told))
    try:
        link.execute(order, ())
    except BaseException:
        with suppress(psycopg.Error):  # else whoever builds next does it
            drop_broken(link, table, column)
        raise


def await_others(link: Link, table: Table) -> None:
    """Waits until nobody else builds an index on a table; others like us wait from now on.

    By asking now and then: a session that waits inside PostgreSQL would itself be waited for.
    """
    found = link.execute(TABLE, {"table": table.name, "schema": table.schema}).fetchone()
    while found and link.execute(TURN, (OURS | found[0],)).fetchone() == (False,):
        time.sleep(PAUSE)
    while found and link.execute(FAR, (found[0],)).fetchone() is not None:
        time.sleep(PAUSE)


def drop_broken(link: Link, table: Table, column: Column) -> None:
    """Removes those of a table of ours that were not built to their end."""
    for one in read_indexes(link, table, column):
        if not one.valid:
            link.execute(DROP.format(quoted(table.schema, one.name)), ())


@contextmanager
def telling(database: Database, table: Table, watch: Callable[[str], None]) -> Iterator[None]:
    """Tells how far the server is, meanwhile.

    Args:
        database: Not the connection that builds.
        table: On which an index is built.
        watch: Is told.
    """
    done = threading.Event()

    def look(link: Link) -> None:
        found = link.execute(TABLE, {"table": table.name, "schema": table.schema}).fetchone()
        row = link.execute(FAR, (found[0],)).fetchone() if found else None
        if row is not None:
            watch(row[0] if row[1] is None else f"{row[0]}, {row[1]} % of the table")

    def tell() -> None:
        while not done.wait(SECOND):
            with suppress(GalleryError):  # the build itself tells what is wrong
                database.ask("look how far the index is", look, again=False)

    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield
    finally:
        done.set()
        teller.join()
