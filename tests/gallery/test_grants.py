"""The grants that each command needs on PostgreSQL, by roles that have these and no more."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from nobackfill.errors import GalleryError
from nobackfill.gallery.backfill import FromFile, backfill
from nobackfill.gallery.cleanup import remove_new, retire_old
from nobackfill.gallery.indexing import index_new
from nobackfill.gallery.pull import pull
from nobackfill.gallery.repair import repair
from nobackfill.gallery.routing import entries, rollback, switch
from nobackfill.gallery.serving import serve
from nobackfill.gallery.shadow import compare_queries
from nobackfill.gallery.status import status_of
from nobackfill.gallery.stores import open_store
from nobackfill.gallery.stores.base import ours
from nobackfill.vectors import Vectors
from nobackfill.vectors.space import Space

PATH = Path(__file__).parent / "stores" / "engine_pgvector.py"
spec = importlib.util.spec_from_file_location(PATH.stem, PATH)
engine = importlib.util.module_from_spec(spec)
spec.loader.exec_module(engine)

DOCS = Path(__file__).parents[2] / "docs" / "gallery.md"
SPACE = Space(dim=4, weights="new")
IDS = [str(number) for number in range(1, 41)]
OLD, NEW = np.random.default_rng(0).normal(size=(2, 40, 4)).astype(np.float32)
OWNED, TABLE, NOTES = '"granted"', '"granted__nobackfill_new"', '"granted__nobackfill_notes"'

# What each command needs: on the schema, the owner's table, the new one and the notes.
MADE = "made by it"
READ = ("usage", "select (id, vector)")
GRANTS = {
    "status, check, search, shadow, pull, plan, log, --dry-run": (*READ, "select", "select"),
    "backfill, the first": ("usage, create", "select (id, vector)", MADE, MADE),
    "backfill, by another role": (*READ, "select, insert, update", "select, insert, update"),
    "index": ("usage, create", "", "owner", "select, insert, update"),
    "switch, rollback": (*READ, "select", "select, insert, update"),
    "clean": ("usage", "", "owner", "select, insert, update, delete"),
    "repair": ("usage", "", "select", "select, insert, update, delete"),
    "retire": ("usage", "owner", "select", "select, insert, update"),
}  # fmt: skip


def new(store):
    return ours(store.main, "new")


def source():
    return FromFile(Vectors(IDS, NEW, space=SPACE))


def read_all(store, folder):
    store.search(store.main, OLD[:2], 3)
    store.search(new(store), NEW[:2], 3)
    compare_queries(store, store.main, OLD[:2], OLD[2:4], 3)
    pull(store, new(store), folder / "pulled.parquet")
    remove_new(store, new(store), dry_run=True)
    assert [held.items for held in status_of(store).collections] == [40, 40]
    assert entries(store)


def write_all(store, folder):
    backfill(store, new(store), IDS, source())
    assert store.count(new(store)) == store.count(store.main)


def go_live(store, folder):
    serve(store, new(store), folder / "new.parquet")
    rollback(store)


def damage_and_repair(store, folder):
    assert repair(store)


def take_away(store, folder):
    assert retire_old(store, new(store), confirm=store.main) == 40


COMMANDS = dict(
    zip(
        GRANTS,
        (
            read_all,
            write_all,
            write_all,
            lambda store, folder: index_new(store, new(store)),
            go_live,
            lambda store, folder: remove_new(store, new(store)),
            damage_and_repair,
            take_away,
        ),
        strict=True,
    )
)


@pytest.fixture(scope="module")
def admin():
    with engine.connect() as link:
        link.execute("drop schema if exists stock cascade")
        link.execute("create schema stock")
        if link.execute("select 1 from pg_roles where rolname = 'clerk'").fetchone() is None:
            link.execute("create role clerk login")
        yield link


def make(link, command):
    """The gallery as it is before a command, with nothing granted."""
    link.execute("drop owned by clerk cascade")
    link.execute("drop schema stock cascade")
    link.execute("create schema stock")
    link.execute("set search_path = stock, public")
    link.execute(f"create table {OWNED} (id bigint primary key, vector vector(4), secret text)")
    with link.cursor() as cursor:
        rows = [(int(id), str(row.tolist())) for id, row in zip(IDS, OLD, strict=True)]
        cursor.executemany(f"insert into {OWNED} values (%s, %s, 'private')", rows)
    link.execute(f"create index on {OWNED} using hnsw (vector vector_cosine_ops)")
    if command == "backfill, the first":
        return
    with open_store(line("postgres")) as store:
        ids = IDS[:20] if command.startswith("backfill") else IDS
        backfill(store, new(store), ids, source())
        if command == "retire":
            switch(store, new(store), query_space=SPACE.fingerprint, share=1.0)
        if command == "repair":
            store.note(f"space/{new(store)}", None)
            store.note("sketch/granted__nobackfill_gone", "torn")
            switch(store, new(store), query_space=SPACE.fingerprint, share=1.0)
            store.note("route", "torn")


def line(user):
    return engine.line_of("stock.granted", user=user)


def grants_of(command):
    """Single grants, as pairs of a privilege and what it is on."""
    places = ("schema stock", OWNED, TABLE, NOTES)
    for place, privileges in zip(places, GRANTS[command], strict=True):
        listed = [privileges] if "(" in privileges else privileges.split(", ")
        yield from ((one, place) for one in listed if one not in ("", MADE))


def give(link, grants):
    for privilege, place in grants:
        if privilege == "owner":
            link.execute(f"alter table {place} owner to clerk")
        else:
            link.execute(f"grant {privilege} on {place} to clerk")


def run(command, folder):
    Vectors(IDS, NEW, space=SPACE).save(folder / "new.parquet")
    with open_store(line("clerk"), read_only=command.startswith("status")) as store:
        COMMANDS[command](store, folder)


@pytest.mark.parametrize("command", GRANTS)
def test_a_role_with_these_grants_may(command, admin, tmp_path):
    make(admin, command)
    give(admin, grants_of(command))
    run(command, tmp_path)


@pytest.mark.parametrize(
    ("command", "lacking"), [(command, one) for command in GRANTS for one in grants_of(command)]
)
def test_each_of_them_is_needed(command, lacking, admin, tmp_path):
    make(admin, command)
    give(admin, [one for one in grants_of(command) if one != lacking])
    with pytest.raises(GalleryError):
        run(command, tmp_path)


def test_columns_that_are_not_granted_are_not_read(admin, tmp_path):
    command = next(iter(GRANTS))
    make(admin, command)
    give(admin, grants_of(command))
    with open_store(line("clerk"), read_only=True) as store:
        assert store.scan(store.main, limit=3).columns == {}


def test_the_page_lists_these_grants():
    lines = DOCS.read_text().splitlines()
    for command, grants in GRANTS.items():
        names = {"": "–", "owner": "owner", MADE: MADE}
        cells = (names.get(cell, f"`{cell}`") for cell in grants)
        assert f"| {command} | {' | '.join(cells)} |" in lines
