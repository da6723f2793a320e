"""What a table of vectors looks like, read from PostgreSQL's own catalog."""

import re
import uuid
from dataclasses import dataclass

from psycopg import sql

from nobackfill.errors import GalleryError
from nobackfill.gallery.stores.base import MARK
from nobackfill.gallery.stores.pgvector.connection import Link

INTEGERS = {"int2": 15, "int4": 31, "int8": 63}  # with their bits, without the sign
KEYS = {**dict.fromkeys(INTEGERS, "int8"), "text": "text", "varchar": "text", "uuid": "uuid"}
# what JSON knows is told as it is, and anything else as text
PLAIN = (
    "bool", "int2", "int4", "int8", "float4", "float8", "text", "varchar", "json", "jsonb",
    "_int4", "_int8", "_text", "_varchar",
)  # fmt: skip
LARGE = ("vector", "halfvec", "sparsevec", "bytea")  # not told at all
LONGEST = 63  # bytes of a name; PostgreSQL cuts longer ones without a word

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
        name: As it is written, without quotes.
        kind: PostgreSQL's name of the type.
        size: Dimensions of a vector; -1 where the column does not say.
        readable: Whether we may read it.
        referable: Whether a column of ours may refer to it.
        indexed: Whether an index that is not exact answers searches by cosine.
        refers: Whether it refers to another table, which removes items from this one.
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
        """For a statement."""
        return quoted(self.name)


@dataclass(frozen=True)
class Table:
    """A table of vectors.

    Attributes:
        schema: In which it is.
        name: Without the schema.
        id: The column of ids.
        vector: The column of vectors; None where they were removed.
        others: What else is stored.
        owner: For a table of ours, the owner's.
    """

    schema: str
    name: str
    id: Column
    vector: Column | None
    others: tuple[Column, ...]
    owner: "Table | None" = None

    @property
    def quoted(self) -> sql.Identifier:
        """For a statement."""
        return quoted(self.schema, self.name)

    @property
    def source(self) -> sql.Composable:
        """What is read: never an item that its owner has deleted."""
        if self.owner is None or self.id.refers:
            return self.quoted
        return sql.SQL(
            "(select * from {} as m where exists (select from {} as o where o.{} = m.id)) as s"
        ).format(self.quoted, self.owner.quoted, self.owner.id.quoted)


def quoted(*names: str) -> sql.Identifier:
    """A name for a statement that is given values, where % would stand for one."""
    return sql.Identifier(*(name.replace("%", "%%") for name in names))


def read_table(link: Link, schema: str | None, name: str, id: str, vector: str) -> Table | None:
    """A table as the catalog has it; None where there is none.

    Args:
        link: To the database.
        schema: None for wherever the connection finds it.
        name: Of the table.
        id: The column of ids.
        vector: The column of vectors.
    """
    found = link.execute(TABLE, {"table": name, "schema": schema}).fetchone()
    if found is None:
        return None
    columns = {row[0]: Column(*row) for row in link.execute(COLUMNS, (found[0],))}
    if id not in columns or columns[id].kind not in KEYS:
        kind = f"is of type {columns[id].kind}" if id in columns else "is not there"
        raise GalleryError(
            f"wanted ids that are whole numbers, text or uuid in the column `{id}` of "
            f"`{found[1]}.{name}`, but it {kind}. Name the column behind ?id=; there are: "
            f"{', '.join(columns)}."
        )
    if vector in columns and columns[vector].kind not in ("vector", "halfvec"):
        raise GalleryError(
            f"wanted a column of type vector or halfvec, but `{vector}` of `{found[1]}.{name}` is "
            f"of type {columns[vector].kind}. Name the column behind ?vector=; there are: "
            f"{', '.join(columns)}."
        )
    others = tuple(
        column
        for column in columns.values()
        if column.name not in (id, vector) and column.kind not in LARGE and column.readable
    )
    return Table(found[1], name, columns[id], columns.get(vector), others)


def as_key(kind: str, text: str) -> Key | None:
    """An id as a column has it; None where the column cannot have such a one.

    Example:
        >>> as_key("int4", "12"), as_key("int4", "012"), as_key("int4", "3000000000")
        (12, None, None)
        >>> as_key("uuid", "abc"), as_key("text", "abc")
        (None, 'abc')
    """
    if kind in INTEGERS:
        most = 2 ** INTEGERS[kind]
        fits = re.fullmatch("0|-?[1-9][0-9]{0,18}", text) and -most <= int(text) < most
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
    """Refuses names for tables of ours that PostgreSQL would cut, or that are taken.

    Args:
        name: Of the table for new vectors.
        main: Of the owner's.
    """
    notes = notes_of(main)
    if name == notes:
        raise GalleryError(
            "wanted a name for the new vectors other than `notes`, which our notes have already."
        )
    room = LONGEST - len(f"{main}{MARK}".encode())
    for ours, remedy in (
        (notes, "Make a view of the table with a shorter name, and open that."),
        (name, f"Choose a name of at most {room} letters for the new vectors."),
    ):
        if len(ours.encode()) > LONGEST:
            raise GalleryError(
                f"wanted a table of ours named `{ours}`, but PostgreSQL cuts names at {LONGEST} "
                f"bytes and this has {len(ours.encode())}. {remedy}"
            )


def notes_of(main: str) -> str:
    """The table of our notes."""
    return f"{main}{MARK}notes"
