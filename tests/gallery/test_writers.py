"""One writer at a time, known by a token: nobody writes or serves what became another's."""

import os
import threading
import time
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from nobackfill.core.locks import lock_output
from nobackfill.errors import ConfigError, DataError, GalleryError, SpaceMismatch
from nobackfill.gallery import backfill as backfilling
from nobackfill.gallery.backfill import FromFile, backfill, begin
from nobackfill.gallery.cleanup import remove_new, retire_old
from nobackfill.gallery.provenance import (
    check_token,
    declaration,
    declare,
    declared,
    reading,
    token_of,
)
from nobackfill.gallery.pull import pull
from nobackfill.gallery.routing import current, entries, rollback, switch
from nobackfill.gallery.serving import serve
from nobackfill.gallery.status import status_of
from nobackfill.gallery.stores import client, open_store
from nobackfill.gallery.stores.base import ours
from nobackfill.vectors import Vectors, load_vectors
from nobackfill.vectors.records import space_of
from nobackfill.vectors.space import Space

ONE, TWO = (Space(dim=8, weights=name) for name in ("one", "two"))


@pytest.fixture
def one(items):
    return source(items, ONE, 1)


@pytest.fixture
def two(items):
    return source(items, TWO, 2)


def source(items, space, seed):
    rows = np.random.default_rng(seed).normal(size=(len(items[0]), 8)).astype(np.float32)
    return FromFile(Vectors(items[0], rows, space=space))


class Between:
    """A source that does something between two of its batches."""

    def __init__(self, source, act, after=1):
        self.source, self.space, self.dim = source, source.space, source.dim
        self.act, self.after = act, after

    def make(self, ids):
        if self.after == 0:
            self.act()
        self.after -= 1
        return self.source.make(ids)


def of_one_model(store, collection, source):
    """Whether all vectors of a collection are a source's."""
    rows = store.scan(collection, limit=1000)
    wanted = source.make(rows.ids)
    return bool(rows.ids) and np.allclose(rows.vectors, wanted, atol=1e-5)


def rebuild(store, source, number=40):
    """Another process removes the new vectors and writes those of another model."""
    new = ours(store.main, "v2")
    remove_new(store, new)
    backfill(store, new, store.scan(store.main, limit=number).ids, source)


def test_a_collection_has_one_token_for_its_life(store, items, one):
    new = ours(store.main, "v2")
    first = begin(store, new, one)
    assert begin(store, new, one) == first == token_of(store, new)
    backfill(store, new, items[0][:5], one)
    assert token_of(store, new) == first
    remove_new(store, new)
    assert token_of(store, new) is None
    assert begin(store, new, one) not in (None, first)
    assert declared(store, new) == ONE


def test_a_backfill_stops_when_another_model_takes_its_collection(store, items, one, two):
    new = ours(store.main, "v2")
    rude = Between(one, lambda: rebuild(store, two))
    with pytest.raises(GalleryError, match="was removed meanwhile.*Nothing more was written"):
        backfill(store, new, items[0], rude, batch=20)
    assert store.count(new) == 40
    assert of_one_model(store, new, two)
    assert declared(store, new) == TWO


def test_a_backfill_stops_when_its_collection_is_removed(store, items, one):
    new = ours(store.main, "v2")
    with pytest.raises(GalleryError, match="was removed meanwhile"):
        backfill(store, new, items[0], Between(one, lambda: remove_new(store, new)), batch=20)
    assert not store.exists(new)
    assert token_of(store, new) is None


def test_even_the_same_model_does_not_go_on_in_a_collection_that_was_made_anew(store, items, one):
    new = ours(store.main, "v2")
    with pytest.raises(GalleryError, match="was removed meanwhile"):
        backfill(store, new, items[0], Between(one, lambda: rebuild(store, one)), batch=20)
    assert store.count(new) == 40


def test_the_log_is_of_those_who_finished(store, items, one, two):
    new = ours(store.main, "v2")
    with pytest.raises(GalleryError):
        backfill(store, new, items[0], Between(one, lambda: rebuild(store, two)), batch=20)
    told = [(entry["action"], entry.get("space")) for entry in entries(store)]
    assert told == [("clean", None), ("backfill", TWO.fingerprint)]


def test_a_declaration_is_never_replaced(store, two, one):
    new = ours(store.main, "v2")
    token = begin(store, new, one)
    with pytest.raises(SpaceMismatch, match="Choose another name"):
        declare(store, new, TWO)
    assert declaration(store, new) == (ONE, token)
    check_token(store, new, token)


def test_a_gallery_of_an_earlier_version_gets_a_token(store, items, one, two):
    new = ours(store.main, "v2")
    begin(store, new, one)
    store.note(f"space/{new}", ONE.to_json())
    assert declaration(store, new) == (ONE, None)
    with pytest.raises(SpaceMismatch):
        begin(store, new, two)
    token = begin(store, new, one)
    assert token is not None
    assert token_of(store, new) == token


def test_vectors_that_nothing_declares_are_not_continued(store, items, one):
    new = ours(store.main, "v2")
    backfill(store, new, items[0][:5], one)
    store.note(f"space/{new}", None)
    with pytest.raises(GalleryError, match="nothing declares which model.*gallery repair"):
        begin(store, new, one)
    assert remove_new(store, new) == 5


def test_a_rollback_serves_only_what_was_served(store, items, one, two):
    """Finding 3: v1 served, taken back, rebuilt by v2, and rolled back to."""
    new = ours(store.main, "v2")
    backfill(store, new, items[0], one)
    switch(store, new, query_space=ONE.fingerprint, share=1.0)
    assert current(store).space == ONE.fingerprint
    switch(store, store.main, query_space=None, share=1.0)
    rebuild(store, two, 200)
    with pytest.raises(GalleryError, match="another model has replaced them"):
        rollback(store)
    assert current(store).collection == store.main


def test_a_collection_of_another_model_is_not_served_as_what_the_caller_took_it_for(store, one):
    new = ours(store.main, "v2")
    begin(store, new, one)
    with pytest.raises(GalleryError, match="another model has replaced them"):
        switch(store, new, query_space=None, share=1.0, space=TWO.fingerprint)
    assert current(store).collection == store.main


def test_the_status_says_that_what_is_served_was_replaced(store, items, one, two):
    new = ours(store.main, "v2")
    backfill(store, new, items[0], one)
    switch(store, new, query_space=ONE.fingerprint, share=1.0)
    assert status_of(store).problem is None
    store.note(f"space/{new}", TWO.to_json())  # not by a command: they refuse to
    assert "another model has replaced them" in status_of(store).problem
    store.drop(new)
    assert "it was removed" in status_of(store).problem


def test_nothing_is_read_across_two_models(store, items, one, two):
    new = ours(store.main, "v2")
    backfill(store, new, items[0], one)
    with reading(store, new):
        backfill(store, new, items[0], one)  # more of the same
    with pytest.raises(GalleryError, match="written anew by another process"), reading(store, new):
        rebuild(store, two)


# Pulls.


def test_a_pulled_collection_that_is_rebuilt_meanwhile_is_no_file(store, items, one, two, tmp_path):
    new, output = ours(store.main, "v2"), tmp_path / "out.parquet"
    backfill(store, new, items[0], one)
    seen = []

    def rebuild_once(done):
        if not seen:
            rebuild(store, two, 200)
        seen.append(done)

    with pytest.raises(GalleryError, match="of two models, and is discarded"):
        pull(store, new, output, page=70, progress=rebuild_once)
    assert [path.name for path in tmp_path.glob("*out*")] == []
    assert pull(store, new, output) == 200
    assert space_of(output) == TWO


class Stop(Exception):
    pass


def stopped(store, collection, output):
    def stop(done):
        raise Stop

    with pytest.raises(Stop):
        pull(store, collection, output, page=33, progress=stop)


def test_a_pull_goes_on_with_the_same_collection_only(store, items, one, two, tmp_path):
    new, output = ours(store.main, "v2"), tmp_path / "out.parquet"
    backfill(store, new, items[0], one)
    stopped(store, new, output)
    with pytest.raises(DataError, match="of a collection other than now. Remove the folder"):
        pull(store, store.main, output)
    rebuild(store, two, 200)
    with pytest.raises(DataError, match="of vectors other than now"):
        pull(store, new, output)
    assert not output.exists()


def test_a_pull_does_not_go_on_with_another_gallery(tmp_path, items):
    ids, vectors, _ = items
    output = tmp_path / "out.parquet"
    for name, rows in (("a", vectors), ("b", -vectors)):
        Vectors(ids, rows).save(tmp_path / f"{name}.npz")
    with open_store(f"flat://{tmp_path}/a.npz") as store:
        stopped(store, store.main, output)
    with (
        open_store(f"flat://{tmp_path}/b.npz") as store,
        pytest.raises(DataError, match="of a gallery other than now"),
    ):
        pull(store, store.main, output)
    (tmp_path / "b.npz").replace(tmp_path / "a.npz")  # other contents at the same place
    with (
        open_store(f"flat://{tmp_path}/a.npz") as store,
        pytest.raises(DataError, match="other vectors under the same ids"),
    ):
        pull(store, store.main, output)


def test_pages_of_which_nobody_knows_the_source_are_not_taken(tmp_path, items):
    Vectors(items[0], items[1]).save(tmp_path / "a.npz")
    output = tmp_path / "out.parquet"
    with open_store(f"flat://{tmp_path}/a.npz") as store:
        stopped(store, store.main, output)
        (tmp_path / ".out.parquet.pages" / "source.json").unlink()
        with pytest.raises(DataError, match=r"Remove the folder .*out\.parquet\.pages"):
            pull(store, store.main, output)


def test_a_pull_removes_its_last_page_first_and_what_they_are_of_at_the_end(
    tmp_path, items, monkeypatch
):
    """What a kill leaves in between can be continued."""
    Vectors(items[0], items[1]).save(tmp_path / "a.npz")
    removed = []
    unlink = os.unlink
    monkeypatch.setattr(
        os, "unlink", lambda path, **how: (removed.append(Path(path).name), unlink(path, **how))
    )
    with open_store(f"flat://{tmp_path}/a.npz") as store:
        pull(store, store.main, tmp_path / "out.parquet", page=33)
    pages = [f"{number:08d}.parquet" for number in range(7)]
    assert [name for name in removed if name in (*pages, "source.json")] == [
        *reversed(pages), "source.json",
    ]  # fmt: skip
    assert not (tmp_path / ".out.parquet.pages").exists()


def test_of_two_pulls_into_one_file_the_second_is_refused(tmp_path, items):
    Vectors(items[0], items[1]).save(tmp_path / "a.npz")
    output = tmp_path / "out.parquet"
    refused = []

    def rival(done):
        with open_store(f"flat://{tmp_path}/a.npz") as other:
            try:
                pull(other, other.main, output)
            except ConfigError as error:
                refused.append(str(error))

    def in_another_thread(done):
        thread = threading.Thread(target=rival, args=(done,))
        thread.start()
        thread.join()

    with open_store(f"flat://{tmp_path}/a.npz") as store:
        assert pull(store, store.main, output, page=100, progress=in_another_thread) == 200
    assert len(refused) == 2
    assert "Another process is writing" in refused[0]
    assert len(load_vectors(output).ids) == 200


def test_a_pulled_file_says_which_model_made_it(store, items, one, tmp_path):
    new, output = ours(store.main, "v2"), tmp_path / "out.parquet"
    backfill(store, new, items[0], one)
    pull(store, new, output, page=90)
    assert load_vectors(output).space == ONE
    assert len(pq.read_table(output)) == 200


# The lock.


def held_by_another(line, seconds):
    """Holds the lock of a gallery in a forked process; the parent waits until it does."""
    reading_end, writing_end = os.pipe()
    child = os.fork()
    if not child:
        try:
            with open_store(line) as store:

                def hold():
                    store.notes()
                    os.write(writing_end, b"x")
                    time.sleep(seconds)
                    store.note("held", "until the end")

                store.exclusively("hold", hold)
        finally:
            os._exit(0)
    os.close(writing_end)
    os.read(reading_end, 1)
    os.close(reading_end)
    return child


@pytest.mark.parametrize("kind", ["flat", "pgvector"])
def test_who_writes_waits_for_another_process(kind, fill_with):
    line = fill_with(kind)
    child = held_by_another(line, 1.0)
    try:
        with open_store(line) as store:
            seen = store.exclusively("look", store.notes)
            assert seen == {"held": "until the end"}
    finally:
        os.waitpid(child, 0)


def test_who_writes_waits_for_another_thread(line):
    """As for another process, where an engine does not survive a fork."""
    order = []
    with open_store(line) as one, open_second(one, line) as other:

        def hold():
            order.append("held")
            time.sleep(0.5)
            one.note("held", "until the end")

        thread = threading.Thread(target=lambda: one.exclusively("hold", hold))
        thread.start()
        while not order:
            time.sleep(0.01)
        assert other.exclusively("look", other.notes) == {"held": "until the end"}
        thread.join()


def open_second(store, line):
    """A second store, or the same where the engine allows one."""
    return nullcontext(store) if line.startswith("qdrant") else open_store(line)


@pytest.mark.parametrize("kind", ["flat", "pgvector"])
def test_who_waits_too_long_is_told(kind, fill_with, monkeypatch):
    line = fill_with(kind)
    monkeypatch.setattr(client, "PATIENCE", 0.2)
    monkeypatch.setattr("nobackfill.gallery.stores.sidecar.PATIENCE", 0.2)
    if kind == "pgvector":
        monkeypatch.setattr("nobackfill.gallery.stores.pgvector.connection.PAUSES", (0.01,))
    child = held_by_another(line, 3.0)
    try:
        with open_store(line) as store, pytest.raises(GalleryError, match=r"run the command again"):
            store.exclusively("look", store.notes)
    finally:
        os.waitpid(child, 0)


@pytest.mark.parametrize("kind", ["flat", "pgvector"])
def test_what_fails_in_the_middle_was_never_done(kind, fill_with, items, one):
    with open_store(fill_with(kind)) as store:
        new = ours(store.main, "v2")
        backfill(store, new, items[0], one)

        def half():
            store.drop(new)
            store.note("half", "done")
            raise Stop

        with pytest.raises(Stop):
            store.exclusively("do half", half)
        assert store.count(new) == 200
        assert "half" not in store.notes()


def test_who_holds_the_lock_may_take_it_again(store):
    def inner():
        store.note("a", "b")
        return store.exclusively("again", store.notes)

    assert store.exclusively("once", inner) == {"a": "b"}


def test_a_lock_of_a_file_is_waited_for(tmp_path):
    target, order = tmp_path / "x", []

    def hold():
        with lock_output(target):
            order.append("held")
            time.sleep(0.3)
            order.append("freed")

    thread = threading.Thread(target=hold)
    thread.start()
    while not order:
        time.sleep(0.01)
    with pytest.raises(ConfigError), lock_output(target, wait=0.05):
        pass
    with lock_output(target, wait=5.0):
        order.append("mine")
    thread.join()
    assert order == ["held", "freed", "mine"]


def test_a_server_without_locks_takes_back_what_came_too_late(fill_with, items, one, two):
    """The collection is taken between the check of the token and the write of the batch."""
    with open_store(fill_with("flat")) as store:
        new = ours(store.main, "v2")
        token = begin(store, new, one)
        ids = items[0][:5]
        upsert = store.upsert

        def late(collection, ids, vectors):
            store.upsert = upsert
            rebuild(store, two, 0)
            begin(store, new, two)
            upsert(collection, ids, vectors)

        store.locks, store.upsert = False, late
        with pytest.raises(GalleryError, match="was removed meanwhile"):
            backfilling.write(store, new, token, ids, one.make(ids))
        assert store.count(new) == 0


def test_a_file_that_was_replaced_is_not_written_beside(tmp_path, items, one):
    path = tmp_path / "items.npz"
    Vectors(items[0], items[1]).save(path)
    with open_store(f"flat://{path}") as store:
        new = ours(store.main, "v2")
        backfill(store, new, items[0][:20], one)
        Vectors(items[0], -items[1]).save(path)
        with pytest.raises(GalleryError, match="replaced since it was opened.*run the command"):
            backfill(store, new, items[0], one)
        assert store.count(new) == 20


# Switch, clean, retire.


@pytest.fixture
def served(items, tmp_path):
    """A file of the first model's vectors, as `switch --model` takes it."""
    path = tmp_path / "one.parquet"
    rows = np.random.default_rng(1).normal(size=(len(items[0]), 8)).astype(np.float32)
    Vectors(items[0], rows, space=ONE).save(path)
    return path


def test_what_is_checked_is_what_is_served(store, items, one, two, served, monkeypatch):
    """Another process removes the collection when the last check has passed; see finding 14."""
    new = ours(store.main, "v2")
    backfill(store, new, items[0], one)
    kept = store.exclusively
    inside = []
    monkeypatch.setattr(
        store, "exclusively", lambda *a, **o: (inside.append(a[0]), kept(*a, **o))[1]
    )
    checks = []
    monkeypatch.setattr(
        "nobackfill.gallery.serving.check_share",
        lambda *a, **o: (checks.append(list(inside)), 1.0)[1],
    )
    serve(store, new, served)
    assert checks == [[f"serve `{new}`"]]  # it looked when it had the lock
    assert current(store).collection == new
    with pytest.raises(GalleryError, match="it is served"):
        remove_new(store, new)


def test_a_dry_run_takes_no_lock(store, items, one, served):
    new = ours(store.main, "v2")
    backfill(store, new, items[0], one)
    before = store.notes()
    store.read_only = True
    assert serve(store, new, served, dry_run=True).route.collection == new
    assert remove_new(store, new, dry_run=True) == 200
    assert store.notes() == before


@pytest.mark.parametrize("kind", ["lancedb", "pgvector"])
def test_items_that_come_before_the_drop_stop_it(kind, fill_with, items, one, monkeypatch):
    """The owner inserts after the first count; the second one is right before the drop."""
    with open_store(fill_with(kind)) as store:
        new = ours(store.main, "v2")
        backfill(store, new, items[0], one)
        switch(store, new, query_space=ONE.fingerprint, share=1.0)
        retire = store.retire

        def late(collection):
            insert(kind, store, 900_001)
            retire(collection)

        monkeypatch.setattr(store, "retire", late)
        with pytest.raises(GalleryError, match="1 have none. Finish the backfill first"):
            retire_old(store, new, confirm=store.main)
        assert store.get(store.main, ["900001"]).vectors.shape == (1, 8)
        assert "retire" not in [entry["action"] for entry in entries(store)]


def test_lancedb_keeps_vectors_that_come_after_the_last_count(fill_with, items, one):
    import lancedb

    line = fill_with("lancedb")
    stale = lancedb.connect(line.removeprefix("lancedb://").rpartition("/")[0]).open_table("items")
    stale.count_rows()
    with open_store(line) as store:
        new = ours(store.main, "v2")
        backfill(store, new, items[0], one)
        check = store.check_is_covered

        def late(collection):
            check(collection)
            insert("lancedb", store, 900_001)

        store.check_is_covered = late
        store.retire(new)
        stale.add([{"id": 900_002, "vector": [1.0] * 8, "colour": "red"}])
        rows = store.get(store.main, ["900001", "900002", *items[0]])
        kept = ~np.isnan(rows.vectors).any(axis=1)
        assert sorted(np.array(rows.ids)[kept].tolist()) == ["900001", "900002"]
        assert store.count(store.main) == 202


def insert(kind, store, id):
    """The owner inserts an item."""
    if kind == "lancedb":
        import lancedb

        table = lancedb.connect(store._tables.folder).open_table(store.main)
        table.add([{"id": id, "vector": [1.0] * 8, "colour": "red"}])
        return
    import psycopg

    with psycopg.connect(**store.database._parameters, autocommit=True) as connection:
        connection.execute(
            f'insert into "{store.main}" values (%s, %s, %s)', (id, str([1.0] * 8), "red")
        )


def test_pgvector_keeps_inserts_out_while_it_counts_and_drops(fill_with, items, one):
    """Between the last count and the drop, the owner's insert waits."""
    import psycopg

    with open_store(fill_with("pgvector")) as store:
        new = ours(store.main, "v2")
        backfill(store, new, items[0], one)
        check, outcome = store.check_is_covered, []

        def slow(collection):
            check(collection)
            outcome.append(refused(store))

        def refused(store):
            with psycopg.connect(**store.database._parameters, autocommit=True) as owner:
                owner.execute("set lock_timeout = 100")
                try:
                    owner.execute(
                        f'insert into "{store.main}" values (1000001, %s, %s)',
                        (str([1.0] * 8), "red"),
                    )
                except psycopg.errors.LockNotAvailable:
                    return "waits"
            return "inserted"

        store.check_is_covered = slow
        store.retire(new)
        assert outcome == ["waits"]
        assert not store.exists(store.main)


def test_another_space_with_the_same_name_is_another_collection(store, one, two):
    """Two names are two collections, with a token each."""
    first = begin(store, ours(store.main, "one"), one)
    second = begin(store, ours(store.main, "two"), two)
    assert first != second
    assert store.new_collections() == [ours(store.main, "one"), ours(store.main, "two")]
    assert declared(store, ours(store.main, "two")) == replace(TWO)
