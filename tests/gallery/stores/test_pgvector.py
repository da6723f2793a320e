"""What only PostgreSQL has: names and ids of any kind, permissions, references, indexes."""

import importlib.util
import uuid
from pathlib import Path

import numpy as np
import psycopg
import pytest

from nobackfill.errors import ConfigError, GalleryError
from nobackfill.gallery.stores import open_store
from nobackfill.gallery.stores.base import ours

PATH = Path(__file__).parent / "engine_pgvector.py"
spec = importlib.util.spec_from_file_location(PATH.stem, PATH)
engine = importlib.util.module_from_spec(spec)
spec.loader.exec_module(engine)

COLOURS = {"colour": ["red", "green", "blue", "red"]}
VECTORS = np.eye(4, dtype=np.float32)


def make(ids=("1", "2", "3", "4"), **options):
    return engine.fill(None, list(ids), VECTORS, COLOURS, **options)


def run(text):
    """A statement of the owner; the answer's rows."""
    with engine.connect() as connection:
        cursor = connection.execute(text)
        return cursor.fetchall() if cursor.description else []


def tables():
    return {row[0] for row in run("select relname from pg_class where relkind = 'r'")}


def walk(store):
    """One of everything, on a store of four items."""
    new = ours(store.main, "v2")
    ids = store.scan(store.main).ids
    store.create(new, 4)
    store.upsert(new, ids, VECTORS[::-1].copy())
    assert store.scan(new, after=ids[1], limit=9).ids == ids[2:]
    assert store.search(new, VECTORS[:1], 1).ids == [[ids[3]]]
    assert sorted(store.get(new, ids[:2]).ids) == sorted(ids[:2])
    store.remove(new, ids[:1])
    assert store.count(new) == 3
    store.note("route", "50 % new")
    assert store.notes() == {"route": "50 % new"}
    store.drop(new)
    assert store.count(store.main) == 4


@pytest.mark.parametrize(
    "table", ['"; drop table items; --', "50% \"off\" %s {id} 'now'", "Äpfel", "select", "a/b?c#d"]
)
def test_a_table_of_any_name(table):
    make(table="items")
    with open_store(make(table=table)) as store:
        walk(store)
    assert {"items", table} <= tables()


@pytest.mark.parametrize("kind", ["text", "varchar(30)"])
def test_ids_are_values_and_never_statements(kind):
    ids = ['"; drop table items; --', "'); drop table items; --", "%s", "ü"]
    make(table="items")
    with open_store(make(ids, kind=kind)) as store:
        walk(store)
        assert sorted(store.get(store.main, ids).ids) == sorted(ids)
        assert store.get(store.main, ["\0", "\ud800", "x" * 99]).ids == []
    assert "items" in tables()


def test_ids_that_are_uuids():
    ids = sorted(str(uuid.UUID(int=number)) for number in range(4))
    with open_store(make(ids, kind="uuid")) as store:
        walk(store)
        assert store.get(store.main, [*ids[:1], "abc", "1"]).ids == ids[:1]


@pytest.mark.parametrize("kind", ["smallint", "int", "bigint"])
def test_an_id_that_the_column_cannot_have_is_not_there(kind):
    strange = ["abc", "002", "1.0", "1 ", "-0", "99999999999999999999999", "١", ""]
    with open_store(make(kind=kind)) as store:
        walk(store)
        new = ours(store.main, "v3")
        store.create(new, 4)
        assert store.get(store.main, [*strange, "2"]).ids == ["2"]
        store.upsert(new, [*strange[:3], "2"], VECTORS)
        store.remove(new, strange)
        assert store.scan(new).ids == ["2"]
        np.testing.assert_array_equal(store.scan(new).vectors, VECTORS[3:])
        with pytest.raises(GalleryError, match="Cannot continue after the id"):
            store.scan(store.main, after="abc")


@pytest.mark.parametrize("kind", ["json", "numeric", "timestamp"])
def test_ids_of_other_kinds_are_refused(kind):
    run("drop table if exists odd")
    run(f"create table odd (id {kind}, vector vector(4))")
    with pytest.raises(GalleryError, match=f"has the type {kind}.*the table has: id, vector"):
        open_store(engine.line_of("odd"))


def test_columns_and_schema_are_named_in_the_line():
    run("create schema if not exists shop")
    run("drop table if exists shop.goods cascade")
    run('create table shop.goods ("No" int primary key, "the vector" vector(4), vector text)')
    for row, vector in enumerate(VECTORS):
        run(f"insert into shop.goods values ({row}, '{vector.tolist()}', 'red')")
    line = engine.line_of("shop.goods", id="No", vector="the vector", application_name="shop")
    with open_store(line) as store:
        walk(store)
        assert store.scan(store.main).columns == {"vector": ["red"] * 4}
        store.create(ours(store.main, "kept"), 4)
        name = store.database.link().execute("select current_setting('application_name')")
        assert name.fetchone() == ("shop",)
    assert run("select to_regclass('shop.goods__nobackfill_kept')::text") == [
        ("shop.goods__nobackfill_kept",)
    ]
    with pytest.raises(GalleryError, match=r"Did you mean `shop\.goods`"):
        open_store(engine.line_of("goods"))


def test_halves():
    with open_store(make(vector="halfvec")) as store:
        walk(store)
        np.testing.assert_array_equal(store.scan(store.main).vectors, VECTORS)
        assert store.search(store.main, VECTORS[:2] * 3, 1) == ([["1"], ["2"]], [[1.0], [1.0]])


def test_a_column_that_does_not_say_its_dimensions_and_items_without_a_vector():
    run("drop table if exists loose cascade")
    run("create table loose (id int primary key, vector vector)")
    with open_store(engine.line_of("loose")) as store:
        with pytest.raises(GalleryError, match="does not declare its dimensions"):
            store.dim(store.main)
        run("insert into loose values (1, null), (2, '[1,0,0,0]'), (3, '[0,0,0,0]')")
        assert (store.dim(store.main), store.count(store.main)) == (4, 2)
        assert store.scan(store.main, limit=1).ids == ["2"]
        assert store.get(store.main, ["1", "2"]).ids == ["2"]
        assert store.search(store.main, VECTORS[:1], 9) == ([["2", "3"]], [[1.0, 0.0]])
        run("insert into loose values (4, '[1,0]')")
        with pytest.raises(GalleryError, match="of one length"):
            store.scan(store.main)


def test_what_else_is_stored_is_told_as_json_knows_it():
    run("drop table if exists rich cascade")
    run("drop type if exists mood")
    run("create type mood as enum ('glad')")
    run(
        "create table rich (id int primary key, vector vector(4), price numeric, mood mood, "
        "made timestamptz, tags text[], told jsonb, number real, image bytea, title vector(3))"
    )
    run(
        "insert into rich values (1, '[1,0,0,0]', 1.50, 'glad', 'infinity', '{a,b}', "
        "'{\"x\": [1]}', 0.5, 'x', '[1,2,3]')"
    )
    run("insert into rich (id, vector) values (2, '[0,1,0,0]')")
    with open_store(engine.line_of("rich")) as store:
        assert store.scan(store.main).columns == {
            "price": ["1.50", None],
            "mood": ["glad", None],
            "made": ["infinity", None],
            "tags": [["a", "b"], None],
            "told": [{"x": [1]}, None],
            "number": [0.5, None],
        }


def test_items_that_the_owner_deletes_or_renames_vanish_or_follow():
    with open_store(make(table="kept")) as store:
        new = ours(store.main, "v2")
        store.create(new, 4)
        store.upsert(new, ["1", "2", "3", "99"], VECTORS)
        run("delete from kept where id = 1")
        run("update kept set id = 20 where id = 2")
        assert store.scan(new).ids == ["3", "20"]
        store.upsert(new, ["1", "3"], VECTORS[:2])
        assert store.scan(new).ids == ["3", "20"]


def test_a_table_that_the_owner_changes_is_looked_up_again_after_the_error():
    line = make(table="changed")
    with open_store(line) as store:
        assert store.count(store.main) == 4
        run("alter table changed drop column vector")
        with pytest.raises(GalleryError, match="vector"):
            store.scan(store.main)
        with pytest.raises(GalleryError, match="they were removed, or never made"):
            store.scan(store.main)


def test_a_view_cannot_be_referred_to_but_deleted_items_are_hidden():
    make(table="behind")
    run("create or replace view pane as select * from behind")
    with open_store(engine.line_of("pane")) as store:
        walk(store)
        new = ours(store.main, "v2")
        store.create(new, 4)
        store.upsert(new, ["1", "2"], VECTORS[:2])
        run("delete from behind where id = 1")
        assert (store.scan(new).ids, store.count(new)) == (["2"], 1)
        assert store.get(new, ["1", "2"]).ids == ["2"]
        assert store.search(new, VECTORS[:1], 5).ids == [["2"]]
        store.drop(new)
    run("drop view pane")


def test_of_two_vectors_for_one_item_the_last_is_kept():
    with open_store(make()) as store:
        new = ours(store.main, "v2")
        store.create(new, 4)
        store.upsert(new, ["1", "2", "1"], VECTORS[:3])
        np.testing.assert_array_equal(store.get(new, ["1"]).vectors, VECTORS[2:3])
        with pytest.raises(GalleryError, match="requires vectors of 4 dimensions"):
            store.upsert(new, ["1"], np.ones((1, 3), np.float32))
        with pytest.raises(GalleryError, match="requires vectors of 4 dimensions"):
            store.search(new, np.ones((1, 3), np.float32), 1)


def test_many_vectors_are_written_all_or_none(monkeypatch):
    monkeypatch.setattr("nobackfill.gallery.stores.pgvector.store.PAGE", 3)
    with open_store(make()) as store:
        new = ours(store.main, "v2")
        store.create(new, 4)
        broken = VECTORS.copy()
        broken[3, 0] = np.nan  # in the second page; PostgreSQL refuses it
        with pytest.raises(GalleryError, match="NaN not allowed in vector"):
            store.upsert(new, ["1", "2", "3", "4"], broken)
        assert store.count(new) == 0
        store.upsert(new, ["1", "2", "3", "4"], VECTORS)
        assert store.count(new) == 4


@pytest.mark.parametrize(
    ("index", "exact"),
    [
        ("hnsw (vector vector_cosine_ops)", False),
        ("ivfflat (vector vector_cosine_ops) with (lists = 1)", False),
        ("hnsw (vector vector_l2_ops)", True),  # of no use for cosines
    ],
)
def test_an_index_of_the_owner_is_used_and_told(index, exact):
    vectors = np.random.default_rng(0).normal(size=(300, 4)).astype(np.float32)
    ids = [str(number) for number in range(300)]
    line = engine.fill(None, ids, vectors, {"colour": ids}, table="indexed")
    with open_store(line) as store:
        assert store.exact
        wanted = store.search(store.main, VECTORS, 100)
    run(f"create index on indexed using {index}")
    with open_store(line) as store:
        assert store.exact is exact
        store.database.link().execute("set enable_seqscan = off")
        found = store.search(store.main, VECTORS, 100)  # more than hnsw.ef_search
        for names, cosines, all_of_them in zip(*found, wanted.ids, strict=True):
            assert len(names) == 100
            assert cosines == sorted(cosines, reverse=True)
            assert len({*names} & {*all_of_them}) > 80


def test_read_only_is_kept_by_the_server_as_well():
    with open_store(make(table="still"), read_only=True) as store:
        for order in ("delete from still", "create table x (id int)", "drop table still"):
            with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
                store.database.link().execute(order)
        store.read_only = False  # as a mistake of ours would
        with pytest.raises(GalleryError, match="connection or the server is read only"):
            store.create(ours(store.main, "v2"), 4)
        assert store.count(store.main) == 4


def test_a_user_who_may_only_read():
    make(table="shown")
    if not run("select from pg_roles where rolname = 'reader'"):
        run("create role reader login")
    run("grant select (id, vector, colour) on shown to reader")
    run("alter table shown add column secret text")
    before = tables()
    with open_store(engine.line_of("shown", user="reader")) as store:
        assert store.scan(store.main).columns == COLOURS
        assert store.search(store.main, VECTORS[:1], 1).ids == [["1"]]
        assert store.notes() == {}
        for write in (
            lambda: store.create(ours(store.main, "v2"), 4),
            lambda: store.note("route", "x"),
            lambda: store.retire(store.main),
        ):
            with pytest.raises(GalleryError, match=r"(permission denied|must be owner).*grant"):
                write()
        assert tables() == before
        with open_store(engine.line_of("shown")) as admin:
            admin.note("route", "x")
        for look in (store.notes, lambda: store.read_note("route")):  # there, but not granted
            with pytest.raises(GalleryError, match="read the notes .* permission denied .* grant"):
                look()
        run("grant select on shown__nobackfill_notes to reader")
        assert store.notes() == {"route": "x"}


def test_a_user_who_may_write_beside_the_table_but_not_refer_to_it():
    make(table="half")
    if not run("select from pg_roles where rolname = 'helper'"):
        run("create role helper login")
    run("grant select on half to helper")
    run("grant create on schema public to helper")
    with open_store(engine.line_of("half", user="helper")) as store:
        walk(store)
        new = ours(store.main, "v2")
        store.create(new, 4)
        store.upsert(new, ["1", "2"], VECTORS[:2])
        run("delete from half where id = 1")
        assert store.scan(new).ids == ["2"]


def test_old_vectors_are_retired_and_ours_go_on():
    line = make(table="retired")
    with open_store(line) as store:
        new = ours(store.main, "v2")
        store.create(new, 4)
        store.upsert(new, ["1", "2", "3", "4"], VECTORS)
        store.retire(new)
        assert not store.exists(store.main)
    assert run("select id, colour from retired order by id") == [
        (number + 1, colour) for number, colour in enumerate(COLOURS["colour"])
    ]
    with open_store(line.replace("/retired", "/public.retired")) as store:
        new = ours(store.main, "v2")
        assert store.search(new, VECTORS[:1], 1).ids == [["1"]]
        store.upsert(new, ["1"], VECTORS[1:2])
        with pytest.raises(GalleryError, match="removed, or never made"):
            store.scan(store.main)


def test_names_that_would_be_cut_or_are_taken_are_refused():
    with open_store(make(table="t" * 45)) as store:
        store.note("route", "x")
        store.create(ours(store.main, "v2345"), 4)
        with pytest.raises(GalleryError, match="has 64 bytes, .* truncates names at 63.*at most 5"):
            store.create(ours(store.main, "v23456"), 4)
        with pytest.raises(GalleryError, match="cannot be named `notes`"):
            store.drop(f"{store.main}__nobackfill_notes")
        assert not store.exists(f"{store.main}__nobackfill_notes")
        assert store.notes() == {"route": "x"}
    with open_store(make(table="ä" * 23)) as store:
        for write in (
            lambda: store.create(ours(store.main, "v2"), 4),
            lambda: store.note("route", "x"),
        ):
            with pytest.raises(GalleryError, match="has 64 bytes.*Create a view"):
                write()


def test_a_password_is_never_shown(monkeypatch):
    line = "pgvector://ann:s3%2Fcret@127.0.0.1:1/shop/items"
    with pytest.raises(GalleryError, match=r"Could not connect at pgvector://ann:.*127\.0") as told:
        open_store(line)
    assert "refused" in str(told.value)
    assert "cret" not in str(told.value)
    assert told.value.__suppress_context__  # what psycopg said is not printed below

    def fail(**parameters):
        raise psycopg.OperationalError(f"cannot use {parameters} nor s3%2Fcret")

    monkeypatch.setattr(psycopg, "connect", fail)
    with pytest.raises(GalleryError, match=r"'password': '\*\*\*'") as told:
        open_store(line)
    assert "cret" not in str(told.value)


def test_what_is_missing_is_told():
    make(table="articles")
    with pytest.raises(GalleryError, match="there is none. Did you mean `articles`"):
        open_store(engine.line_of("article"))
    run("drop table if exists plain")
    run("create table plain (id int primary key, vector text, other text)")
    with pytest.raises(GalleryError, match=r"`vector` of `public.plain` has the type text"):
        open_store(engine.line_of("plain"))
    with pytest.raises(GalleryError, match=r"No column `title` of vectors.*\?vector="):
        open_store(engine.line_of("plain", vector="title"))
    with pytest.raises(GalleryError, match="does not exist, .*the table has: id, vector, other"):
        open_store(engine.line_of("plain", id="number"))
    if not run("select from pg_database where datname = 'bare'"):
        run("create database bare")
    with pytest.raises(GalleryError, match="create extension vector"):
        open_store(engine.line_of("items", database="bare"))
    with pytest.raises(GalleryError, match='database "none" does not exist'):
        open_store(engine.line_of("items", database="none"))
    with pytest.raises(GalleryError, match="never made"), open_store(make()) as store:
        store.count(ours(store.main, "v2"))


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("pgvector://db/shop/items?sslmod=require", "Did you mean `sslmode`"),
        ("pgvector://db/shop/items?options=-c%20x", "unknown option `options`"),
        ("pgvector://db/shop", "is not of the form pgvector://"),
        ("pgvector://db/shop/", "is not of the form pgvector://"),
        ("pgvector://[::1]:5432/shop/items", "Write an address of IPv6"),
    ],
)
def test_lines_that_make_no_sense(line, told):
    with pytest.raises(ConfigError, match=told):
        open_store(line)
