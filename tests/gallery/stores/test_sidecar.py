"""Our file beside a gallery: kills, second writers, full disks, foreign files."""

import os
import signal
import sqlite3
import subprocess
import sys
import time

import numpy as np
import pytest

from nobackfill.errors import GalleryError
from nobackfill.gallery.stores.sidecar import SideFile

BATCH = 50
START = """
import sys
from pathlib import Path
import numpy as np
from nobackfill.errors import GalleryError
from nobackfill.gallery.stores.sidecar import SideFile
side = SideFile(Path(sys.argv[1]))
"""
# batch n is written whole, each number in it being n
ENDLESS = f"""
side.create("v2", 64)
for number in range(10_000):
    ids = [str(number * {BATCH} + one) for one in range({BATCH})]
    side.upsert("v2", ids, np.full(({BATCH}, 64), number, dtype=np.float32))
    if number == 3:
        print("going", flush=True)
"""
# both write the same ids, each its own number
RIVAL = """
side.create("v2", 4)
print("ready", flush=True)
sys.stdin.readline()
for _ in range(30):
    ids = [str(one) for one in range(100)]
    side.upsert("v2", ids, np.full((100, 4), float(sys.argv[2]), dtype=np.float32))
    side.note(f"by {sys.argv[2]}", "here")
"""
# no file may become larger than 200 kB
CRAMPED = """
import resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
side.create("v2", 64)
try:
    for number in range(100):
        ids = [str(number * 50 + one) for one in range(50)]
        side.upsert("v2", ids, np.full((50, 64), number, dtype=np.float32))
except GalleryError as error:
    print(number, error)
"""


def start(code, path, *arguments):
    return subprocess.Popen(
        [sys.executable, "-c", START + code, str(path), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.fixture
def side(tmp_path):
    return SideFile(tmp_path / "items.faiss.nobackfill")


def check_whole(side):
    """Every batch is there as a whole or not at all; returns how many there are."""
    rows = side.scan("v2", after=None, limit=-1)
    by_number = {}
    for one, row in zip(rows.ids, rows.vectors, strict=True):
        assert (row == int(one) // BATCH).all()
        by_number.setdefault(int(one) // BATCH, []).append(one)
    assert all(len(ids) == BATCH for ids in by_number.values())
    assert sorted(by_number) == list(range(len(by_number)))
    return len(by_number)


def test_a_kill_leaves_whole_batches_and_writing_goes_on(side):
    before = 0
    for pause in (0.0, 0.013, 0.031):
        with start(ENDLESS, side.path) as process:
            assert process.stdout.readline() == "going\n"
            time.sleep(pause)
            os.kill(process.pid, signal.SIGKILL)
        assert process.returncode == -signal.SIGKILL
        after = check_whole(side)
        assert after >= max(before, 4)
        before = after
    side.upsert("v2", ["0"], np.full((1, 64), 7, dtype=np.float32))
    assert side.get("v2", ["0"]).vectors[0, 0] == 7


def test_a_kill_before_the_first_write_ended_is_like_nothing(side):
    sqlite3.connect(side.path).close()
    side.path.touch()
    assert not side.exists("v2")
    assert (side.count("v2"), side.notes()) == (0, {})
    side.create("v2", 3)
    assert side.dim("v2") == 3


def test_two_writers_of_the_same_items_at_once(side):
    with start(RIVAL, side.path, "1") as one, start(RIVAL, side.path, "2") as other:
        for process in (one, other):
            assert process.stdout.readline() == "ready\n"
        for process in (one, other):
            process.stdin.write("go\n")
            process.stdin.flush()
    assert (one.returncode, other.returncode) == (0, 0)
    rows = side.scan("v2", after=None, limit=1000)
    assert sorted(rows.ids, key=int) == [str(number) for number in range(100)]
    assert len(np.unique(rows.vectors)) == 1  # of the last one, whole
    assert side.notes() == {"by 1": "here", "by 2": "here"}


def test_a_full_disk_says_so_and_keeps_what_was_written(side):
    with start(CRAMPED, side.path) as process:
        told = process.stdout.read()
    assert process.returncode == 0
    number, message = told.split(" ", 1)
    assert "Could not write" in message
    assert "make room" in message
    assert check_whole(side) == int(number) > 0
    side.upsert("v2", ["0"], np.zeros((1, 64), dtype=np.float32))  # where there is room again


@pytest.mark.parametrize("act", [SideFile.notes, lambda side: side.create("v2", 3)])
def test_a_file_that_is_none_of_ours(side, act):
    side.path.write_bytes(b"something else entirely " * 100)
    with pytest.raises(
        GalleryError, match="not a database. nobackfill did not write it: move it away"
    ):
        act(side)
    assert side.path.read_bytes().startswith(b"something else")


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(GalleryError, match="Could not write .*unable to open"):
        SideFile(tmp_path / "nowhere" / "items").create("v2", 3)


def test_a_search_sees_what_another_process_wrote(side):
    side.create("v2", 2)
    side.upsert("v2", ["1"], np.array([[1, 0]], dtype=np.float32))
    query = np.array([[0, 3]], dtype=np.float32)
    assert side.search("v2", query, 1).ids == [["1"]]
    code = 'side.upsert("v2", ["2"], np.array([[0, 1]], dtype=np.float32))'
    with start(code, side.path) as process:
        process.wait()
    assert side.search("v2", query, 1) == ([["2"]], [[1.0]])
    side.remove("v2", ["2"])
    assert side.search("v2", query, 1).ids == [["1"]]


def test_nothing_is_made_by_reading(side):
    assert side.notes() == {}
    assert not side.exists("v2")
    for read in (
        lambda: side.dim("v2"),
        lambda: side.get("v2", ["1"]),
        lambda: side.scan("v2", after=None, limit=3),
        lambda: side.search("v2", np.ones((1, 2), dtype=np.float32), 3),
    ):
        with pytest.raises(GalleryError, match="No collection `v2`"):
            read()
    assert not side.path.exists()


def test_an_empty_id_is_an_id(side):
    side.create("v2", 2)
    side.upsert("v2", ["", "a"], np.eye(2, dtype=np.float32))
    assert side.scan("v2", after=None, limit=5).ids == ["", "a"]
    assert side.scan("v2", after="", limit=5).ids == ["a"]
    assert side.search("v2", np.eye(2, dtype=np.float32)[:1], 1).ids == [[""]]
