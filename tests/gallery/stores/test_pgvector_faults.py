"""A real PostgreSQL that is restarted, killed and written by others while we work on it."""

import importlib.util
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import psycopg
import pytest

from nobackfill.errors import GalleryError
from nobackfill.gallery.stores import open_store
from nobackfill.gallery.stores.base import ours
from nobackfill.gallery.stores.pgvector import connection as postgres

PATH = Path(__file__).parent / "engine_pgvector.py"
spec = importlib.util.spec_from_file_location(PATH.stem, PATH)
engine = importlib.util.module_from_spec(spec)
spec.loader.exec_module(engine)

NUMBER = 600
IDS = [str(number) for number in range(NUMBER)]
VECTORS = np.random.default_rng(0).normal(size=(NUMBER, 16)).astype(np.float32)


@pytest.fixture
def line():
    return engine.fill(None, IDS, VECTORS, {"colour": IDS})


@pytest.fixture
def store(line):
    with open_store(line) as opened:
        opened.create(ours(opened.main, "v2"), 16)
        yield opened


def write(store, stop, vectors=VECTORS, page=60):
    """Writes all vectors over and over, until told to stop."""
    new, rounds = ours(store.main, "v2"), 0
    while not stop.is_set() or rounds < 2:
        for first in range(0, NUMBER, page):
            some = slice(first, first + page)
            store.upsert(new, IDS[some], vectors[some])
        rounds += 1


def read(store, stop):
    """Searches and pages, until told to stop."""
    rounds = 0
    while not stop.is_set() or rounds < 2:
        assert [found[0] for found in store.search(store.main, VECTORS[:3], 2).ids] == IDS[:3]
        assert store.scan(store.main, after="99", limit=5).ids == IDS[100:105]
        rounds += 1


def while_working(disturb, *jobs):
    """Runs jobs to their end, with something done to them in their middle."""
    stop = threading.Event()
    with ThreadPoolExecutor(len(jobs)) as pool:
        running = [pool.submit(job, stop) for job in jobs]
        try:
            time.sleep(0.2)
            disturb()
        finally:
            stop.set()
        for one in running:
            one.result()


def check_all_there(store, vectors=VECTORS):
    new = ours(store.main, "v2")
    assert store.count(new) == NUMBER
    rows = store.get(new, IDS)
    np.testing.assert_array_equal(rows.vectors, vectors[[int(one) for one in rows.ids]])


@pytest.mark.parametrize("how", ["fast", "immediate"])
def test_a_restart_of_the_server(store, line, how):
    def restart():
        engine.stop(how)
        time.sleep(0.5)
        engine.go_on()
        time.sleep(1.5)

    with open_store(line, read_only=True) as reader:
        before = store.database.link().info.backend_pid
        while_working(restart, lambda stop: write(store, stop), lambda stop: read(reader, stop))
        assert store.database.link().info.backend_pid != before
        with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):  # the second connection too
            reader.database.link().execute("create table x (id int)")
    check_all_there(store)


def test_connections_that_are_ended_again_and_again(store, line):
    ended = 0

    def end():
        nonlocal ended
        with engine.connect() as connection:
            for _ in range(40):
                time.sleep(0.05)
                ended += connection.execute(
                    "select count(pg_terminate_backend(pid)) from pg_stat_activity "
                    "where application_name = 'nobackfill'"
                ).fetchone()[0]

    with open_store(line) as reader:
        while_working(end, lambda stop: write(store, stop), lambda stop: read(reader, stop))
    assert ended > 5
    check_all_there(store)
    store.note("route", "x")
    assert store.notes() == {"route": "x"}


def test_a_server_that_stays_away(store, monkeypatch):
    monkeypatch.setattr(postgres, "PAUSES", (0.01, 0.02, 0.04))
    tries = []
    connect = psycopg.connect
    monkeypatch.setattr(psycopg, "connect", lambda **told: tries.append(1) or connect(**told))
    engine.stop()
    try:
        with pytest.raises(GalleryError, match="Could not remove the old vectors"):
            store.retire(ours(store.main, "v2"))
        assert not tries  # the only one was on the connection that was lost: never twice
        tries.clear()
        with pytest.raises(
            GalleryError, match="run the command again once the server can be reached"
        ):
            store.search(store.main, VECTORS[:1], 1)
        assert len(tries) == 4
        tries.clear()
        with pytest.raises(GalleryError, match="run the command again once"):
            store.upsert(ours(store.main, "v2"), IDS[:1], VECTORS[:1])
        assert len(tries) == 4
    finally:
        engine.go_on()
    assert store.search(store.main, VECTORS[:1], 1).ids == [["0"]]


def test_an_error_among_several_queries_is_told_as_it_is(store):
    new = ours(store.main, "v2")
    store.upsert(new, IDS, VECTORS)
    with engine.connect() as connection:
        connection.execute(f'drop table "{new}"')
    with pytest.raises(GalleryError, match=f'relation "public.{new}" does not exist. Somebody'):
        store.search(new, VECTORS[:5], 1)
    assert not store.exists(new)
    store.create(new, 16)  # and the connection is of use
    assert store.search(new, VECTORS[:5], 1).ids == [[]] * 5


def test_the_pauses_grow_and_end_after_half_a_minute():
    assert list(postgres.PAUSES) == sorted(postgres.PAUSES)
    assert 25 < sum(postgres.PAUSES) <= 30


def test_two_writers_of_the_same_items(store, line, monkeypatch):
    pauses = []
    sleep = SimpleNamespace(sleep=lambda seconds: pauses.append(seconds) or time.sleep(seconds))
    monkeypatch.setattr(postgres, "time", sleep)
    backwards = VECTORS[::-1].copy()
    order = np.random.default_rng(1).permutation(NUMBER)
    as_given = "set enable_hashjoin = off; set enable_mergejoin = off"  # in the order of the ids
    store.database.link().execute(as_given)

    def write_in_any_order(stop):
        with open_store(line) as other:
            other.database.link().execute(as_given)
            while not stop.is_set():
                some = [IDS[place] for place in order]
                other.upsert(ours(other.main, "v2"), some, backwards[order])

    while_working(lambda: time.sleep(3), lambda s: write(store, s, page=NUMBER), write_in_any_order)
    assert len(pauses) < 5  # they wait for each other, but not in a circle
    new = ours(store.main, "v2")
    assert store.count(new) == NUMBER
    rows = store.get(new, IDS)
    places = [int(one) for one in rows.ids]
    first, second = rows.vectors == VECTORS[places], rows.vectors == backwards[places]
    assert (first.all(axis=1) | second.all(axis=1)).all()


def test_two_who_make_the_same_table(line):
    with ThreadPoolExecutor(4) as pool:

        def make(_):
            with open_store(line) as store:
                for name in ("a", "b", "c"):
                    store.create(ours(store.main, name), 16)
                    store.note(name, "x")
                return store.notes()

        for notes in pool.map(make, range(4)):
            assert notes == {"a": "x", "b": "x", "c": "x"}


def test_items_that_the_owner_deletes_while_we_write_stay_deleted(store):
    gone = [number for number in range(NUMBER) if number % 3]
    np.random.default_rng(2).shuffle(gone)

    def delete():
        with engine.connect() as connection:
            for first in range(0, len(gone), 20):  # not once does the owner get an error
                connection.execute(
                    f'delete from "{store.main}" where id = any(%s)', (gone[first : first + 20],)
                )
                time.sleep(0.02)

    while_working(delete, lambda stop: write(store, stop, page=NUMBER))
    left = sorted({*range(NUMBER)} - {*gone})
    assert store.count(store.main) == len(left)
    assert store.scan(ours(store.main, "v2"), limit=NUMBER).ids == [str(one) for one in left]


def test_of_two_who_wait_for_each_other_the_owner_is_not_ended(store):
    question = "select setting::int from pg_settings where name = %s"
    ours_ends, servers_ends = (
        store.database.link().execute(question, (name,)).fetchone()[0]
        for name in ("lock_timeout", "deadlock_timeout")
    )
    assert 0 < ours_ends < servers_ends


def test_an_owner_who_holds_a_lock_for_a_while_is_waited_for(store):
    def hold():
        with engine.connect() as connection, connection.transaction():
            connection.execute(f'lock table "{store.main}__nobackfill_v2"')
            time.sleep(2)

    started = time.monotonic()
    while_working(hold, lambda stop: write(store, stop))
    assert time.monotonic() - started < 10
    check_all_there(store)
