"""Indexes of pgvector: reads them from the catalog and builds them without blocking others."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace

import psycopg
from psycopg import sql

from nobackfill.core.steps import Step
from nobackfill.errors import GalleryError
from nobackfill.gallery.stores.pgvector.connection import Database, Link
from nobackfill.gallery.stores.pgvector.table import Column, Table, find_table, quoted

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
LOCK = "select pg_try_advisory_lock(%s)"
PROGRESS = """
select phase, round(100.0 * blocks_done / nullif(blocks_total, 0))
from pg_stat_progress_create_index where relid = %s
"""
LOCK_SPACE = 0x6E6F6266 << 32  # plus the oid of a table: key of the advisory lock for builds
PAUSE = 0.2  # seconds between two checks for other builds
INTERVAL = 1.0  # seconds between two progress messages


@dataclass(frozen=True)
class PostgresIndex:
    """A pgvector index on one column, without a condition."""

    name: str  # in the schema of its table
    method: str  # such as `hnsw`
    operators: tuple[str, str]  # schema and name of the operator class
    options: tuple[str, ...]  # storage parameters, such as `m=16`
    valid: bool  # whether the build was completed

    def like(self, other: "PostgresIndex") -> bool:
        """Whether both have the same method, operators and options."""
        return (self.method, self.operators, sorted(self.options)) == (
            other.method,
            other.operators,
            sorted(other.options),
        )

    def __str__(self) -> str:
        return f"{self.method} ({', '.join((self.operators[1], *self.options))})"


def read_indexes(link: Link, table: Table, column: Column) -> list[PostgresIndex]:
    """Returns the indexes of a column: those for cosines first, then valid ones first."""
    return [
        PostgresIndex(name, method, (schema, operators), tuple(options), valid)
        for name, method, schema, operators, options, valid in link.execute(
            INDEXES, (table.schema, table.name, column.name)
        )
    ]


def for_vectors(index: PostgresIndex) -> PostgresIndex:
    """Returns the same index for a column of the type vector, also where it is on halfvec."""
    schema, operators = index.operators
    name = "vector_" + operators.removeprefix("halfvec_").removeprefix("vector_")
    return replace(index, operators=(schema, name))


def build(link: Link, table: Table, column: Column, target: PostgresIndex) -> None:
    """Builds an index concurrently, unless it exists.

    An interrupted build leaves an invalid index, which is removed first. After a killed process
    the server may continue its build, which is waited for. The timeouts of `link` are disabled.
    """
    for limit in ("lock_timeout", "statement_timeout"):
        link.execute(f"set {limit} = 0")
    wait_for_other_builds(link, table)
    drop_broken(link, table, column)
    if any(index.like(target) for index in read_indexes(link, table, column)):
        return
    create = BUILD.format(
        table.quoted, quoted(target.method), column.quoted, quoted(*target.operators)
    )
    if target.options:
        options = (option.partition("=") for option in target.options)
        settings = (sql.SQL("{} = {}").format(quoted(k), sql.Literal(v)) for k, _, v in options)
        create = sql.SQL("{} with ({})").format(create, sql.SQL(", ").join(settings))
    try:
        link.execute(create, ())
    except BaseException:
        with suppress(psycopg.Error):  # else the next build removes it
            drop_broken(link, table, column)
        raise


def wait_for_other_builds(link: Link, table: Table) -> None:
    """Waits until no other process builds an index on a table, and locks further builds.

    Polls, because a session that waits inside PostgreSQL blocks concurrent builds.
    """
    row = find_table(link, table.schema, table.name)
    while row and link.execute(LOCK, (LOCK_SPACE | row[0],)).fetchone() == (False,):
        time.sleep(PAUSE)
    while row and link.execute(PROGRESS, (row[0],)).fetchone() is not None:
        time.sleep(PAUSE)


def drop_broken(link: Link, table: Table, column: Column) -> None:
    """Removes the indexes of a table whose build was not completed."""
    for index in read_indexes(link, table, column):
        if not index.valid:
            link.execute(DROP.format(quoted(table.schema, index.name)), ())


@contextmanager
def reporting_progress(
    database: Database, table: Table, watch: Callable[[str], None]
) -> Iterator[None]:
    """Reports the progress of a build on a connection that does not build."""
    done = threading.Event()

    def report(link: Link) -> None:
        place = find_table(link, table.schema, table.name)
        row = link.execute(PROGRESS, (place[0],)).fetchone() if place else None
        if row is not None:
            watch(row[0] if row[1] is None else Step(row[0], float(row[1]), 100))

    def poll() -> None:
        while not done.wait(INTERVAL):
            with suppress(GalleryError):  # the build itself raises what is wrong
                database.run("read the progress", report, retry=False)

    reporter = threading.Thread(target=poll, daemon=True)
    reporter.start()
    try:
        yield
    finally:
        done.set()
        reporter.join()
