"""An index of new vectors in a real PostgreSQL: the owner's kind, stopped and begun again."""

import importlib.util
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import psycopg
import pytest
from psycopg import sql

from nobackfill.errors import GalleryError
from nobackfill.gallery.cleanup import remove_new
from nobackfill.gallery.indexing import index_new
from nobackfill.gallery.stores import open_store
from nobackfill.gallery.stores.base import ours

PATH = Path(__file__).parent / "engine_pgvector.py"
spec = importlib.util.spec_from_file_location(PATH.stem, PATH)
engine = importlib.util.module_from_spec(spec)
spec.loader.exec_module(engine)

NUMBER, DIM = 400, 8
IDS = [str(number) for number in range(NUMBER)]
OLD, NEW = np.random.default_rng(0).normal(size=(2, NUMBER, DIM)).astype(np.float32)
HNSW = "hnsw (vector vector_cosine_ops) with (m = 8, ef_construction = 40)"
HOSTILE = '50% "off"; drop table x -- %s {id}'


def make(index, *, table="indexed", number=NUMBER, dim=DIM, **options):
    """An owner's table with an index; returns its line."""
    for mine in ("new", "notes"):  # of an earlier test
        name = sql.Identifier(f"{table}__nobackfill_{mine}")
        run(sql.SQL("drop table if exists {}").format(name))
    vectors = np.resize(OLD, (number, dim))
    ids = [str(one) for one in range(number)]
    line = engine.fill(None, ids, vectors, {"colour": ids}, table=table, **options)
    if index:
        run(sql.SQL("create index on {} using " + index).format(sql.Identifier(table)))
    return line


def run(text):
    """A statement of the owner; the answer's rows."""
    with engine.connect() as connection:
        cursor = connection.execute(text)
        return cursor.fetchall() if cursor.description else []


def indexes(table):
    """Of vectors: by what each is built, whether it is whole, and where it is on the disk."""
    with engine.connect() as connection:
        return connection.execute(
            "select split_part(pg_get_indexdef(i.indexrelid), ' USING ', 2), i.indisvalid, "
            "pg_relation_filenode(i.indexrelid) from pg_index i join pg_class t on "
            "t.oid = i.indrelid where t.relname = %s and not i.indisprimary",
            (table,),
        ).fetchall()


def write_new(store, vectors=NEW):
    new = ours(store.main, "new")
    store.create(new, vectors.shape[1])
    store.upsert(new, [str(one) for one in range(len(vectors))], vectors)
    return new


@pytest.mark.parametrize(
    ("index", "told"),
    [
        (HNSW, "hnsw (vector_cosine_ops, m=8, ef_construction=40)"),
        ("hnsw (vector vector_cosine_ops)", "hnsw (vector_cosine_ops)"),
        (
            "ivfflat (vector vector_cosine_ops) with (lists = 3)",
            "ivfflat (vector_cosine_ops, lists=3)",
        ),
        ("hnsw (vector vector_l2_ops)", "hnsw (vector_l2_ops)"),
    ],
)
def test_the_owners_kind_is_built_and_finds_what_an_exact_search_finds(index, told):
    line = make(index, table=HOSTILE)
    before = indexes(HOSTILE)
    with open_store(line) as store:
        new = write_new(store)
        query = NEW[:5] + NEW[5:10]
        wanted = store.search(new, query, 20)
        assert index_new(store, new, dry_run=True).to_do == NUMBER
        assert indexes(new) == []
        done = index_new(store, new)
        assert (done.kind, done.to_do, done.vectors) == (told, NUMBER, NUMBER)
        ((built, valid, place),) = indexes(new)
        assert (built, valid) == (before[0][0], True)
        assert store.index_of(new).kind == told
        link = store.database.link()
        for setting in ("enable_seqscan = off", "hnsw.ef_search = 400", "ivfflat.probes = 3"):
            link.execute(f"set {setting}")
        found = store.search(new, query, 20)
        assert found.ids == wanted.ids
        np.testing.assert_allclose(found.cosines, wanted.cosines, atol=1e-6)
        plan = link.execute(
            sql.SQL("explain select id from {} order by vector {} {} limit 5").format(
                sql.Identifier(new),
                sql.SQL("<->" if "l2" in told else "<=>"),
                sql.Literal(str(query[0].tolist())),
            )
        )
        assert any("Index Scan using" in line for (line,) in plan)
        assert index_new(store, new).to_do == 0
        store.index(new)  # asked all the same
        assert indexes(new) == [(built, True, place)]
        assert remove_new(store, new) == NUMBER
    assert indexes(new) == []
    assert indexes(HOSTILE) == before


def test_of_an_index_of_halves_ours_is_of_whole_numbers():
    line = make("hnsw (vector halfvec_cosine_ops) with (m = 8)", vector="halfvec")
    with open_store(line) as store:
        new = write_new(store)
        assert index_new(store, new).kind == "hnsw (vector_cosine_ops, m=8)"
        assert index_new(store, new).to_do == 0


def test_of_several_indexes_that_of_cosines_is_built_and_parts_do_not_count():
    line = make("hnsw (vector vector_l2_ops)")
    run("create index on indexed using hnsw (vector vector_cosine_ops) where id < 100")
    run("create index on indexed using hnsw ((vector::halfvec(8)) halfvec_cosine_ops)")
    with open_store(line) as store:
        new = write_new(store)
        assert index_new(store, new, dry_run=True).kind == "hnsw (vector_l2_ops)"
        run(f"create index on indexed using {HNSW}")
        assert index_new(store, new).kind == "hnsw (vector_cosine_ops, m=8, ef_construction=40)"
        assert len(indexes(new)) == 1


def test_one_that_was_interrupted_is_built_anew():
    with open_store(make(HNSW)) as store:
        new = write_new(store)
        with engine.connect() as writer, writer.transaction():
            writer.execute(f'delete from "{new}" where id = 1')  # which a build waits for
            with engine.connect() as connection:
                connection.execute("set statement_timeout = 300")
                with pytest.raises(psycopg.errors.QueryCanceled):
                    connection.execute(
                        f'create index concurrently broken on "{new}" '
                        f"using hnsw (vector vector_cosine_ops) with (m = 8, ef_construction = 40)"
                    )
        assert [valid for _, valid, _ in indexes(new)] == [False]
        assert store.index_of(new) is None
        assert index_new(store, new, dry_run=True).to_do == NUMBER - 1
        assert [valid for _, valid, _ in indexes(new)] == [False]
        assert index_new(store, new).to_do == NUMBER - 1
        assert [valid for _, valid, _ in indexes(new)] == [True]
        assert index_new(store, new).to_do == 0


def test_one_that_cannot_be_built_leaves_nothing():
    with open_store(make(HNSW)) as store:
        new = write_new(store, np.resize(NEW, (5, 2100)))
        with pytest.raises(GalleryError, match="Could not build the index.* 2000 dimensions"):
            index_new(store, new)
        assert indexes(new) == []
        assert [key for key in store.notes() if key.startswith("log/")] == []


KILLED = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # which children in the background lack
from nobackfill.gallery.stores import open_store
with open_store(sys.argv[1]) as store:
    store.index(sys.argv[2], watch=lambda line: print(line, flush=True))
"""


def test_a_process_that_is_killed_while_its_server_builds_on():
    number, dim = 6000, 64
    line = make(HNSW.replace("40", "200"), number=number, dim=dim)
    vectors = np.random.default_rng(1).normal(size=(number, dim)).astype(np.float32)
    with open_store(line) as store:
        new = write_new(store, vectors)
        places = []
        for _ in range(2):
            process = subprocess.Popen(
                [sys.executable, "-c", KILLED, line, new], stdout=subprocess.PIPE, text=True
            )
            assert process.stdout.readline().startswith("building hnsw")
            until(lambda: indexes(new))
            process.send_signal(signal.SIGKILL)
            process.communicate()
            places += [place for _, _, place in indexes(new)]
        assert index_new(store, new).vectors == number
        ((_, valid, place),) = indexes(new)
        assert (valid, places) == (True, [place] * 2)  # what the first began, and not another
        assert store.search(new, vectors[:3], 100).ids[1][0] == "1"


def test_a_person_who_interrupts_it_leaves_nothing():
    line = make(HNSW.replace("40", "200"), number=6000, dim=64)
    with open_store(line) as store:
        new = write_new(store, np.random.default_rng(1).normal(size=(6000, 64)).astype(np.float32))
        process = subprocess.Popen(
            [sys.executable, "-c", KILLED, line, new],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        until(lambda: indexes(new))
        process.send_signal(signal.SIGINT)
        assert "KeyboardInterrupt" in process.communicate()[1]
        assert indexes(new) == []


def until(found):
    """Waits for something."""
    for _ in range(200):
        if found():
            return
        time.sleep(0.05)
    raise AssertionError("it never came")


def test_two_at_once_build_one_while_others_write():
    line = make(HNSW)
    with open_store(line) as store:
        new = write_new(store)

        def build(_):
            with open_store(line) as other:
                return index_new(other, new).kind

        with ThreadPoolExecutor(3) as pool:
            building = pool.map(build, range(3))
            for _ in range(20):
                store.upsert(new, IDS[:50], OLD[:50])
            assert set(building) == {"hnsw (vector_cosine_ops, m=8, ef_construction=40)"}
        assert [valid for _, valid, _ in indexes(new)] == [True]
        assert store.search(new, OLD[:1], 1).ids == [["0"]]


def test_a_service_that_was_open_before_finds_as_many_as_it_asks_for():
    line = make(HNSW)
    with open_store(line) as service, open_store(line) as store:
        new = write_new(store)
        assert len(service.search(new, NEW[:1], 100).ids[0]) == 100
        index_new(store, new)
        service.database.link().execute("set enable_seqscan = off")
        assert len(service.search(new, NEW[:1], 100).ids[0]) == 100  # not hnsw.ef_search = 40
        assert len(service.search(new, NEW[:1], 500).ids[0]) == NUMBER


def test_who_may_only_read_builds_nothing():
    line = make(HNSW, table="watched")
    with open_store(line) as store:
        new = write_new(store)
    with open_store(line, read_only=True) as store:
        assert index_new(store, new, dry_run=True).to_do == NUMBER
        with pytest.raises(GalleryError, match="read only"):
            index_new(store, new)
        store.read_only = False  # as a mistake of ours would
        with pytest.raises(GalleryError, match="connection or the server is read only"):
            store.index(new)
    assert indexes(new) == []
