"""A process that is killed while it writes: what it wrote is there, and going on completes it."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from nobackfill.gallery.base import ours
from nobackfill.gallery.stores import open_store

SCRIPT = Path(__file__).with_name("killed.py")
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
