"""Tables of vectors as described by PostgreSQL's catalog, and ids as keys of their columns."""

import re
import uuid
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from psycopg import sql

from nobackfill.errors import GalleryError
from nobackfill.gallery.stores.base import MARK, Matrix, notes_of
from nobackfill.gallery.stores.pgvector.connection import Link

INTEGERS = {"int2": 15, "int4": 31, "int8": 63}  # number of bits, without the sign
KEYS = {**dict.fromkeys(INTEGERS, "int8"), "text": "text", "varchar": "text", "uuid": "uuid"}
# types that JSON supports; all others are read as text
PLAIN = (
    "bool", "int2", "int4", "int8", "float4", "float8", "text", "varchar", "json", "jsonb",
    "_int4", "_int8", "_text", "_varchar",
)  # fmt: skip
LARGE = ("vector", "halfvec", "sparsevec", "bytea")  # not read
LONGEST = 63  # bytes of a name; PostgreSQL silently truncates longer ones

Key = int | str | uuid.UUID

TABLE = """
select c.oid, n.nspname from pg_class c join pg_namespace n on n.oid = c.relnamespace
where c.relname = %(table)s and c.relkind in ('r', 'p', 'v', 'm', 'f')
and case when %(schema)s::text is null then pg_table_is_visible(c.oid)
    else n.nspname = %(schema)s end
"""
COLUMNS = """
select a.attname, t.typname, a.atttypmod,
    has_column_privilege(a.attrelid, a.attnum, 'SELECT'),
    has_column_privilege(a.attrelid, a.attnum, 'REFERENCES') and exists (
        select from pg_index i where i.indrelid = a.attrelid and i.indkey[0] = a.attnum
        and i.indisunique and i.indimmediate and i.indisvalid and i.indnkeyatts = 1
        and i.indpred is null),
    exists (
        select from pg_index i join pg_class c on c.oid = i.indexrelid
        join pg_am m on m.oid = c.relam join pg_opclass o on o.oid = i.indclass[0]
        where i.indrelid = a.attrelid and i.indkey[0] = a.attnum and i.indisvalid
        and m.amname in ('hnsw', 'ivfflat') and o.opcname like '%%cosine%%'),
    exists (
        select from pg_constraint f
        where f.conrelid = a.attrelid and f.contype = 'f' and a.attnum = any(f.conkey))
from pg_attribute a join pg_type t on t.oid = a.atttypid
where a.attrelid = %s and a.attnum > 0 and not a.attisdropped order by a.attnum
"""


@dataclass(frozen=True)
class Column:
    """A column of a table."""

    name: str  # without quotes
    kind: str  # name of the type in PostgreSQL
    size: int  # number of dimensions; -1 where the column does not declare it
    readable: bool  # whether the user may read it
    referable: bool  # whether a foreign key may refer to it
    indexed: bool  # whether an approximate index serves searches by cosine
    refers: bool  # whether it is a foreign key, so that deletions cascade to this table

    @property
    def quoted(self) -> sql.Identifier:
        """Identifier for statements."""
        return quoted(self.name)


@dataclass(frozen=True)
class Table:
    """A table of vectors."""

    schema: str
    name: str  # without the schema
    id: Column
    vector: Column | None  # None where it was removed
    others: tuple[Column, ...]
    owner: "Table | None" = None  # the owner's table, for a table of new vectors

    @property
    def quoted(self) -> sql.Identifier:
        """Identifier for statements."""
        return quoted(self.schema, self.name)

    @property
    def source(self) -> sql.Composable:
        """Rows to read, without items that the owner has deleted."""
        if self.owner is None or self.id.refers:
            return self.quoted
        return sql.SQL(
            "(select * from {} as m where exists (select from {} as o where o.{} = m.id)) as s"
        ).format(self.quoted, self.owner.quoted, self.owner.id.quoted)


def quoted(*names: str) -> sql.Identifier:
    """Returns an identifier for statements with parameters, in which % must be doubled."""
    return sql.Identifier(*(name.replace("%", "%%") for name in names))


def find_table(link: Link, schema: str | None, name: str) -> tuple[int, str] | None:
    """Returns the oid and the schema of a table; `schema` is None for the search path."""
    row = link.execute(TABLE, {"table": name, "schema": schema}).fetchone()
    return None if row is None else (row[0], row[1])


def read_table(link: Link, schema: str | None, name: str, id: str, vector: str) -> Table | None:
    """Reads a table with these columns of ids and vectors; None if it does not exist."""
    place = find_table(link, schema, name)
    if place is None:
        return None
    columns = {row[0]: Column(*row) for row in link.execute(COLUMNS, (place[0],))}
    if id not in columns or columns[id].kind not in KEYS:
        problem = f"has the type {columns[id].kind}" if id in columns else "does not exist"
        raise GalleryError(
            f"The column `{id}` of `{place[1]}.{name}` {problem}, but ids must be whole numbers, "
            f"text or uuid. Set the column with ?id=; the table has: {', '.join(columns)}."
        )
    if vector in columns and columns[vector].kind not in ("vector", "halfvec"):
        raise GalleryError(
            f"The column `{vector}` of `{place[1]}.{name}` has the type {columns[vector].kind}, "
            f"not vector or halfvec. Set the column with ?vector=; the table has: "
            f"{', '.join(columns)}."
        )
    others = tuple(
        column
        for column in columns.values()
        if column.name not in (id, vector) and column.kind not in LARGE and column.readable
    )
    return Table(place[1], name, columns[id], columns.get(vector), others)


def as_key(kind: str, text: str) -> Key | None:
    """Converts an id to the type of the column; None if the column cannot store it.

    Example:
        >>> as_key("int4", "12"), as_key("int4", "012"), as_key("int4", "3000000000")
        (12, None, None)
        >>> as_key("uuid", "abc"), as_key("text", "abc")
        (None, 'abc')
    """
    if kind in INTEGERS:
        limit = 2 ** INTEGERS[kind]
        fits = re.fullmatch("0|-?[1-9][0-9]{0,18}", text) and -limit <= int(text) < limit
        return int(text) if fits else None
    try:
        if kind == "uuid":
            key = uuid.UUID(text)
            return key if str(key) == text else None
        text.encode()
    except ValueError:
        return None
    return None if "\0" in text else text


def keys_of(table: Table, ids: Sequence[str]) -> list[Key]:
    """Returns the ids that the table's column can store, as keys."""
    keys = (as_key(table.id.kind, id) for id in ids)
    return [key for key in keys if key is not None]


def unpack(vectors: Sequence[bytes], *, half: bool) -> Matrix:
    """Converts pgvector's binary format to a matrix: 4 header bytes, then big-endian numbers."""
    length = len(vectors[0])
    if any(len(vector) != length for vector in vectors):
        raise GalleryError("The column has vectors of several lengths; they must be of one length.")
    kind, size = (">f2", 2) if half else (">f4", 4)
    layout = np.dtype([("header", ">u4"), ("numbers", kind, ((length - 4) // size,))])
    return np.frombuffer(b"".join(vectors), layout)["numbers"].astype(np.float32)


def check_name(name: str, main: str) -> None:
    """Raises if the table of new vectors or of notes has a name that PostgreSQL would truncate."""
    notes = notes_of(main)
    room = LONGEST - len(f"{main}{MARK}".encode())
    for table, remedy in (
        (notes, "Create a view of the table with a shorter name, and open that."),
        (name, f"Choose a name of at most {room} letters for the new vectors."),
    ):
        if len(table.encode()) > LONGEST:
            raise GalleryError(
                f"Cannot create the table `{table}`: its name has {len(table.encode())} bytes, and "
                f"PostgreSQL truncates names at {LONGEST}. {remedy}"
            )
