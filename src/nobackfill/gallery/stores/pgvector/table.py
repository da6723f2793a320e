"""Tables of vectors as described by PostgreSQL's catalog, and ids as keys of their columns."""

import re
import uuid
from dataclasses import dataclass

from psycopg import sql

from nobackfill.errors import GalleryError
from nobackfill.gallery.stores.base import MARK
from nobackfill.gallery.stores.client import notes_of
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
    """A column of a table.

    Attributes:
        name: Name without quotes.
        kind: Name of the type in PostgreSQL.
        size: Number of dimensions; -1 where the column does not declare it.
        readable: Whether the user may read it.
        referable: Whether a foreign key may refer to it.
        indexed: Whether an approximate index serves searches by cosine.
        refers: Whether it is a foreign key, so that deletions cascade to this table.
    """

    name: str
    kind: str
    size: int
    readable: bool
    referable: bool
    indexed: bool
    refers: bool

    @property
    def quoted(self) -> sql.Identifier:
        """Identifier for statements."""
        return quoted(self.name)


@dataclass(frozen=True)
class Table:
    """A table of vectors.

    Attributes:
        schema: Name of the schema.
        name: Name without the schema.
        id: Column of ids.
        vector: Column of vectors; None where it was removed.
        others: Other columns.
        owner: The owner's table, for a table of new vectors.
    """

    schema: str
    name: str
    id: Column
    vector: Column | None
    others: tuple[Column, ...]
    owner: "Table | None" = None

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


def read_table(link: Link, schema: str | None, name: str, id: str, vector: str) -> Table | None:
    """Reads a table from the catalog; None if it does not exist.

    Args:
        link: Connection.
        schema: Schema; None for the search path.
        name: Name of the table.
        id: Name of the column of ids.
        vector: Name of the column of vectors.
    """
    place = link.execute(TABLE, {"table": name, "schema": schema}).fetchone()
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


def check_name(name: str, main: str) -> None:
    """Raises if a table name is reserved, or so long that PostgreSQL would truncate it.

    Args:
        name: Name of the table of new vectors.
        main: Name of the owner's table.
    """
    notes = notes_of(main)
    if name == notes:
        raise GalleryError(
            "New vectors cannot be named `notes`: that table stores notes. Choose another name."
        )
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
