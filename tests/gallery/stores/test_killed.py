"""A process that is killed while it writes: what it wrote is there, and going on completes it."""

import random
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from nobackfill.gallery.provenance import declared
from nobackfill.gallery.stores import open_store
from nobackfill.gallery.stores.base import ours
from nobackfill.vectors import Vectors
from nobackfill.vectors.space import Space

SCRIPT = Path(__file__).with_name("killed.py")
SPACE = Space(dim=5, weights="new")
KILLS = 5  # of each engine; benchmarks/gallery_kills.py makes 50
engines = pytest.mark.parametrize("line", ["qdrant", "milvus"], indirect=True)


def write_and_kill(line, how, after):
    """Starts a writer and kills it when it has told so many lines."""
    writer = subprocess.Popen(
        [sys.executable, str(SCRIPT), line, how],
        stdout=subprocess.PIPE,
        stdin=subprocess.PIPE,
        text=True,
    )
    with writer:
        told = [writer.stdout.readline() for _ in range(after)]
        writer.kill()
    assert all(told), "the writer ended by itself"
    return int(told[-1])


@engines
def test_what_was_written_right_before_a_kill_is_there(line):
    assert write_and_kill(line, "once", 1) == 20
    with open_store(line) as store:
        new = ours(store.main, "v2")
        assert store.count(new) == 20
        assert store.notes() == {"turn": "1"}
        np.testing.assert_allclose(store.scan(new).vectors, np.full((20, 4), 1.0), atol=1e-6)


@engines
@pytest.mark.parametrize("after", [3, 14])
def test_a_kill_in_the_middle_leaves_one_vector_each_and_going_on_completes(line, after, items):
    write_and_kill(line, "loop", after)
    with open_store(line) as store:
        new = ours(store.main, "v2")
        rows = store.scan(new, limit=1000)
        assert len(set(rows.ids)) == len(rows.ids) == store.count(new) >= min(after * 20, 200)
        assert set(rows.ids) <= set(items[0])
        assert (rows.vectors == rows.vectors[:, :1]).all()  # each whole, of one turn
        assert (rows.vectors > 0).all()
        store.upsert(new, items[0], np.full((200, 4), 99, dtype=np.float32))
        done = store.scan(new, limit=1000)
        assert sorted(done.ids) == sorted(items[0])
        assert store.count(new) == 200
        np.testing.assert_allclose(done.vectors, 99, rtol=1e-6)
        assert store.count(store.main) == 200
    with open_store(line) as store:
        assert store.count(new) == 200


@pytest.fixture
def fresh(tmp_path, items):
    """A file of new vectors."""
    rows = np.random.default_rng(9).normal(size=(len(items[0]), 5)).astype(np.float32)
    path = tmp_path / "fresh.safetensors"
    Vectors(items[0], rows, space=SPACE).save(path)
    return path


@contextmanager
def writers(line, fresh):
    """A function that lets a backfill run for some seconds; returns its exit code and seconds."""
    with subprocess.Popen(
        [sys.executable, str(SCRIPT), line, str(fresh)],
        stdout=subprocess.PIPE,
        stdin=subprocess.PIPE,
        text=True,
    ) as process:

        def run(seconds):
            process.stdin.write(f"{seconds}\n")
            process.stdin.flush()
            code, took = process.stdout.readline().split()
            return int(code), float(took)

        yield run
        process.stdin.close()


def stored(line):
    """Old and new vectors by id, each id once; no new ones where there is no collection yet."""
    with open_store(line) as store:
        found = []
        for collection in (store.main, ours(store.main, "v2")):
            if not store.exists(collection):
                found.append({})
                continue
            rows, after = [], None
            while (page := store.scan(collection, after=after, limit=70)).ids:
                rows += zip(page.ids, (row.tobytes() for row in page.vectors), strict=True)
                after = page.ids[-1]
            assert len(dict(rows)) == len(rows) == store.count(collection)
            found.append(dict(rows))
    return found


@pytest.mark.parametrize("line", ["faiss", "usearch", "lancedb", "qdrant", "milvus"], indirect=True)
def test_a_whole_backfill_that_is_killed_again_and_again(line, fresh, items):
    draw, killed = random.Random(0), 0
    old, _ = stored(line)
    with writers(line, fresh) as run:
        code, length = run("inf")  # never stopped
        assert code == 0
        whole = stored(line)[1]
        assert sorted(whole) == sorted(items[0])
        code = 0
        for _ in range(4 * KILLS):  # some may come too late
            if code == 0:
                with open_store(line) as store:
                    store.drop(ours(store.main, "v2"))  # all is done: once more from the start
                length *= 0.8
            code, _ = run(draw.uniform(0, length))
            assert code in (-9, 0)
            killed += code == -9
            now, new = stored(line)
            assert now == old
            assert new.items() <= whole.items()
            if killed == KILLS:
                break
        assert killed == KILLS
        assert run("inf")[0] == 0
    assert stored(line) == [old, whole]
    with open_store(line) as store:
        assert declared(store, ours(store.main, "v2")) == SPACE


@pytest.mark.parametrize("line", ["milvus"], indirect=True)
def test_a_kill_while_a_collection_was_made_is_no_hindrance(line):
    with open_store(line) as store:
        begun = Path(line.removeprefix("milvus:")) / "collections" / ours(store.main, "v2")
        begun.mkdir()  # where the schema would have been written next
        (begun / "schema.json.tmp").write_text("{")
        assert not store.exists(begun.name)
        store.create(begun.name, 4)
        assert store.count(begun.name) == 0
        assert store.count(store.main) == 200
