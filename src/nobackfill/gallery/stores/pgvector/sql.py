"""SQL statements. Names are always quoted, and values are always parameters."""

from functools import lru_cache
from typing import LiteralString

from psycopg import sql

from nobackfill.gallery.stores.pgvector.table import KEYS, PLAIN, Table

FIRST = (
    "select {id}, {vector}{others} from {source} where {vector} is not null order by {id} limit %s"
)
NEXT = (
    "select {id}, {vector}{others} from {source} "
    "where {id} > %s and {vector} is not null order by {id} limit %s"
)
GET = (
    "select {id}, {vector}{others} from {source} "
    "where {id} = any(%s::{keys}[]) and {vector} is not null"
)
COUNT = "select count(*) from {source} where {vector} is not null"
COVERED = (
    "select count(*) from {table} as new where exists ("
    "select from {owner} as o where o.{owner_id} = new.id and o.{owner_vector} is not null)"
)
DIM = "select vector_dims({vector}) from {source} where {vector} is not null limit 1"
SEARCH = (
    "select {id}, {vector} <=> %b::{kind} as distance from {source} "
    "where {vector} is not null order by distance limit {limit}"  # a literal: one plan
)
MANY = 40  # items that an index returns at most by default
FIND_MORE = (
    "set local hnsw.iterative_scan = strict_order; set local ivfflat.iterative_scan = relaxed_order"
)
FIND_1000 = "set local hnsw.ef_search = 1000"  # for pgvector before 0.8
UPSERT = (
    "insert into {table} (id, vector) select new.id, new.vector "
    "from unnest(%s::{keys}[], %b::vector[]) as new (id, vector) "
    "where exists (select from {owner} as o where o.{owner_id} = new.id) "
    "order by new.id "  # two writers lock items in the same order and never deadlock
    "on conflict (id) do update set vector = excluded.vector"
)
REMOVE = "delete from {table} where id = any(%s::{keys}[])"
CREATE = sql.SQL(
    "create table {} as select {} as id, null::vector({}) as vector from {} with no data"
)
KEYED = sql.SQL("alter table {} add primary key (id), alter column vector set not null")
REFER = sql.SQL(
    "alter table {} add foreign key (id) references {} ({}) on delete cascade on update cascade"
)
NOTES = sql.SQL("create table {} (key text primary key, text text not null)")
NOTE = sql.SQL(
    "insert into {} values (%s, %s) on conflict (key) do update set text = excluded.text"
)
LOCK = "select pg_advisory_xact_lock(hashtextextended(%s, 0))"
NEW_TABLES = """
select c.relname from pg_class c join pg_namespace n on n.oid = c.relnamespace
where n.nspname = %s and starts_with(c.relname, %s) and c.relkind in ('r', 'p') order by 1
"""
TABLES = """
select case when pg_table_is_visible(c.oid) then c.relname else n.nspname || '.' || c.relname end
from pg_class c join pg_namespace n on n.oid = c.relnamespace
where c.relkind in ('r', 'p', 'v', 'm', 'f') and n.nspname not like 'pg\\_%%'
and n.nspname <> 'information_schema' order by 1
"""


@lru_cache(maxsize=256)
def statement(template: LiteralString, table: Table, limit: int = 0) -> bytes:
    """Fills the names of a table and {limit} into a statement.

    {keys} is the type of ids as parameters, {kind} the type of {vector}.
    """
    owner = table.owner or table
    vector = table.vector or table.id
    return (
        sql.SQL(template)
        .format(
            table=table.quoted,
            source=table.source,
            id=table.id.quoted,
            keys=sql.SQL(KEYS[table.id.kind]),
            vector=vector.quoted,
            kind=sql.SQL(vector.kind),
            others=sql.SQL("").join(
                sql.SQL(", {}" if column.kind in PLAIN else ", {}::text").format(column.quoted)
                for column in table.others
            ),
            owner=owner.quoted,
            owner_id=owner.id.quoted,
            owner_vector=(owner.vector or owner.id).quoted,
            limit=sql.Literal(limit),
        )
        .as_bytes(None)
    )
