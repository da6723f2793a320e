"""A backfill on a real disk that is full: what was there stays, and with room again it ends."""

import importlib.util
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from nobackfill.evaluation.bootstrap import Interval
from nobackfill.gallery.backfill import FromFile, backfill
from nobackfill.gallery.planning.curve import Curve
from nobackfill.gallery.planning.plan_file import BackfillPlan
from nobackfill.gallery.provenance import declared
from nobackfill.gallery.stores import STORES, open_store
from nobackfill.gallery.stores.base import ours
from nobackfill.vectors import Vectors, load_vectors
from nobackfill.vectors.space import Space

NUMBER, DIM = 1000, 512
SPACE = Space(dim=DIM, weights="new")
ROOM = 1500 * 2**10  # for some of the new vectors


@pytest.fixture(scope="session")
def many():
    """Ids, old vectors and what else, as `items`, but more of them."""
    draw = np.random.default_rng(0)
    old = draw.normal(size=(NUMBER, 8)).astype(np.float32)
    old /= np.linalg.norm(old, axis=1, keepdims=True)
    return [str(one) for one in draw.permutation(NUMBER) + 1], old, {"colour": ["red"] * NUMBER}


NOTHING = Interval(0.0, 0.0, 0.0, 0.95, 1)


@pytest.fixture
def fresh(tmp_path, many):
    """A plan and a file of new vectors, both on another disk."""
    rows = np.random.default_rng(9).normal(size=(NUMBER, DIM)).astype(np.float32)
    Vectors(many[0], rows, space=SPACE).save(tmp_path / "fresh.safetensors")
    curves = {"random": Curve(shares=(1.0,), values=(0.5,), gains=(NOTHING,))}
    plan = BackfillPlan(
        np.array(many[0]), np.zeros(NUMBER), "random", "", curves, None, "", None, {}
    )
    plan.save(tmp_path / "plan.parquet")
    return tmp_path


@contextmanager
def small_database(engine, disk):
    """A database of PostgreSQL whose tables, not its log, lie on the small disk."""
    server, place = engine.start(), disk.path / "tables"
    place.mkdir()
    if server.system_user:
        shutil.chown(place, server.system_user, server.system_user)
    with engine.connect() as connection:
        connection.execute(f"create tablespace small location '{place}'")
        try:
            connection.execute("create database crowded tablespace small")
            yield server.get_uri(database="crowded")
        finally:
            connection.execute("drop database if exists crowded with (force)")
            connection.execute("drop tablespace small")


@pytest.fixture(params=["flat", "lancedb", "qdrant", "milvus", "pgvector"])
def line(request, disk, many):
    """Where a gallery is that lies on the small disk."""
    kind = request.param
    if kind == "flat":
        Vectors(many[0], many[1]).save(disk.path / "items.safetensors")
        yield f"flat://{disk.path}/items.safetensors"
        return
    pytest.importorskip(STORES[kind].client)
    path = Path(__file__).with_name(f"engine_{kind}.py")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    engine = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(engine)
    if kind != "pgvector":
        yield engine.fill(disk.path, *many)
        return
    with small_database(engine, disk) as uri:
        import psycopg

        engine.connect = lambda: psycopg.connect(uri, autocommit=True)
        with engine.connect() as connection:
            connection.execute("create extension vector")
        engine.fill(None, *many, table="items")
        yield engine.line_of("items", database="crowded")


def stored(store, collection):
    """Vectors by id, each id once."""
    rows, after = [], None
    while (page := store.scan(collection, after=after, limit=300)).ids:
        rows += zip(page.ids, (row.tobytes() for row in page.vectors), strict=True)
        after = page.ids[-1]
    assert len(dict(rows)) == len(rows) == store.count(collection)
    return dict(rows)


def command(line, fresh):
    """`nobackfill gallery backfill`, as people run it."""
    files = "--plan", fresh / "plan.parquet", "--vectors", fresh / "fresh.safetensors"
    told = [sys.executable, "-m", "nobackfill", "gallery", "backfill", line, *files, "--name", "v2"]
    return subprocess.run([str(one) for one in told], capture_output=True, text=True, check=False)


def test_a_full_disk_in_the_middle_of_a_backfill(line, disk, fresh, many):
    with open_store(line) as store:
        old = stored(store, store.main)
        found = store.search(store.main, many[1][:3], 5)
        new = ours(store.main, "v2")
    disk.leave(ROOM)
    ended = command(line, fresh)
    assert ended.returncode == 2, ended.stderr
    assert "Traceback" not in ended.stderr
    assert "Could not " in ended.stderr
    assert "ake room" in ended.stderr
    assert len(ended.stderr.splitlines()) < 5
    assert ended.stdout == ""

    with open_store(line, read_only=True) as store:  # the disk is as small as before
        assert stored(store, store.main) == old
        assert store.search(store.main, many[1][:3], 5) == found
        half = stored(store, new)
    assert 0 < len(half) < NUMBER

    disk.leave(disk.large)
    ended = command(line, fresh)
    assert ended.returncode == 0, ended.stderr
    with open_store(line) as store:
        assert stored(store, store.main) == old
        whole = stored(store, new)
        assert sorted(whole) == sorted(many[0])
        assert half.items() <= whole.items()
        assert declared(store, new) == SPACE
        alone = ours(store.main, "alone")
        backfill(store, alone, many[0], FromFile(load_vectors(fresh / "fresh.safetensors")))
    with open_store(line) as store:
        assert stored(store, alone) == whole  # as one that was never stopped


def test_a_disk_that_is_full_from_the_start(line, disk, fresh, many):
    with open_store(line) as store:
        old = stored(store, store.main)
        new = ours(store.main, "v2")
    disk.leave(0)
    ended = command(line, fresh)
    assert ended.returncode == 2, ended.stderr
    assert "Traceback" not in ended.stderr
    assert "ake room" in ended.stderr
    disk.leave(disk.large)
    ended = command(line, fresh)
    assert ended.returncode == 0, ended.stderr
    with open_store(line) as store:
        assert stored(store, store.main) == old
        assert sorted(stored(store, new)) == sorted(many[0])
