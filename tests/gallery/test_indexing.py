"""An index of new vectors: of the owner's kind, whole, and never on what the owner has."""

import subprocess
import sys
import time

import numpy as np
import pytest

from nobackfill.errors import GalleryError
from nobackfill.gallery.backfill import FromFile, backfill
from nobackfill.gallery.cleanup import remove_new
from nobackfill.gallery.indexing import index_new
from nobackfill.gallery.routing import entries
from nobackfill.gallery.status import status_of
from nobackfill.gallery.stores import open_store
from nobackfill.gallery.stores.base import ours
from nobackfill.vectors import Vectors
from nobackfill.vectors.space import Space

DIM = 16
NUMBER = 600
IDS = [str(number) for number in range(NUMBER)]
OLD, NEW = np.random.default_rng(0).normal(size=(2, NUMBER, DIM)).astype(np.float32)
UNIT = NEW / np.linalg.norm(NEW, axis=1, keepdims=True)
QUERY = UNIT[:7] + 0.3 * UNIT[7:14]


def nearest(query, vectors, k):
    """Written again: the ids of the largest cosines."""
    length = np.linalg.norm(vectors, axis=1) * np.linalg.norm(query, axis=1)[:, None]
    return [[str(one) for one in row[:k]] for row in (-(query @ vectors.T) / length).argsort()]


def write_new(store, vectors=NEW, number=NUMBER):
    collection = ours(store.main, "new")
    source = FromFile(Vectors(IDS, vectors, space=Space(dim=vectors.shape[1], weights="new")))
    backfill(store, collection, IDS[:number], source)
    return collection


def test_where_nothing_has_to_be_built_or_the_owner_has_no_index(store, items):
    with pytest.raises(GalleryError, match="no such collection. Backfill it first"):
        index_new(store, ours(store.main, "new"))
    source = FromFile(Vectors(items[0], items[1], space=Space(dim=8, weights="new")))
    new = ours(store.main, "new")
    backfill(store, new, items[0], source)
    before = store.notes()
    for dry_run in (True, False):
        if store.shown.startswith(("lancedb", "pgvector")):
            with pytest.raises(GalleryError, match="Search is exact then.*nothing to do"):
                index_new(store, new, dry_run=dry_run)
        else:
            done = index_new(store, new, dry_run=dry_run)
            assert (done.by_itself, done.to_do, done.vectors) == (True, 0, 200)
            assert done.kind is None  # all of these look at every new vector
    assert store.notes() == before
    assert [one.index for one in status_of(store).collections][1] is None


# LanceDB.


@pytest.fixture
def lance(tmp_path):
    """Makes an owner's table with an index; returns it and its line."""
    lancedb = pytest.importorskip("lancedb")
    import pyarrow as pa
    from lancedb import index

    def make(kind, vectors=OLD, **parameters):
        flat = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), DIM)
        table = lancedb.connect(tmp_path).create_table(
            "items", pa.table({"id": IDS, "vector": flat})
        )
        table.create_index("vector", config=getattr(index, kind)(**parameters))
        return table, f"lancedb://{tmp_path}/items"

    return make


@pytest.mark.parametrize(
    ("kind", "parameters", "told", "exact"),
    [
        ("IvfFlat", {}, "IVF_FLAT (cosine)", True),
        ("IvfPq", {"num_sub_vectors": 8}, "IVF_PQ (cosine, num_sub_vectors=8, num_bits=8)", False),
        ("IvfSq", {}, "IVF_SQ (cosine)", False),
        ("HnswSq", {"m": 12, "ef_construction": 99}, "IVF_HNSW_SQ (cosine, m=12, ef_co", False),
    ],
)
def test_lancedb_builds_the_owners_kind(lance, kind, parameters, told, exact):
    table, line = lance(kind, distance_type="cosine", **parameters)
    before = table.version
    with open_store(line) as store:
        new = write_new(store)
        wanted = store.search(new, QUERY, 10)
        assert wanted.ids == nearest(QUERY, NEW, 10)
        ahead = index_new(store, new, dry_run=True)
        assert (ahead.to_do, store.index_of(new)) == (NUMBER, None)
        assert ahead.kind.startswith(told)
        lines = []
        assert index_new(store, new, watch=lines.append) == ahead
        assert lines == [f"building {ahead.kind} over 600 vectors"]
        assert store.index_of(new) == (ahead.kind, 0)
        found = store.search(new, QUERY, 10)  # of one part, which is looked at
        if exact:
            assert found.ids == wanted.ids
            np.testing.assert_allclose(found.cosines, wanted.cosines, atol=1e-5)
        else:
            shared = [len({*a} & {*b}) for a, b in zip(found.ids, wanted.ids, strict=True)]
            assert np.mean(shared) > 5
        assert index_new(store, new).to_do == 0
        assert [one["action"] for one in entries(store)] == ["backfill", "index"]
        assert [one.index for one in status_of(store).collections] == [ahead.kind] * 2
        remove_new(store, new)
        assert not store.exists(new)
        write_new(store)
        assert store.index_of(new) is None
    table.checkout_latest()
    assert table.version == before


@pytest.mark.parametrize("metric", ["l2", "dot"])
@pytest.mark.parametrize("vectors", [UNIT, NEW], ids=["unit", "any"])
def test_lancedb_tells_cosines_whatever_the_index_measures(lance, metric, vectors):
    _, line = lance("IvfFlat", distance_type=metric)
    with open_store(line) as store:
        new = write_new(store, vectors)
        assert index_new(store, new).kind == f"IVF_FLAT ({metric})"
        found = store.search(new, QUERY, 10)
        assert found.ids == nearest(QUERY, NEW, 10)
        cosines = (QUERY @ UNIT.T) / np.linalg.norm(QUERY, axis=1, keepdims=True)
        np.testing.assert_allclose(found.cosines, -np.sort(-cosines)[:, :10], atol=1e-5)


def test_lancedb_finds_and_takes_in_what_is_written_later(lance):
    _, line = lance("IvfFlat", distance_type="cosine")
    with open_store(line) as store, open_store(line) as reader:
        new = write_new(store, number=400)
        assert reader.search(new, QUERY, 5).ids == nearest(QUERY, NEW[:400], 5)
        index_new(store, new)
        write_new(store)
        assert store.index_of(new).lacks == 200
        assert reader.search(new, QUERY, 5).ids == nearest(QUERY, NEW, 5)
        assert index_new(store, new).to_do == 200
        assert store.index_of(new).lacks == 0
        assert reader.search(new, QUERY, 5).ids == nearest(QUERY, NEW, 5)


def test_lancedb_other_dimensions_and_no_vectors(lance):
    _, line = lance("IvfPq", distance_type="cosine", num_sub_vectors=8)
    with open_store(line) as store:
        new = ours(store.main, "new")
        store.create(new, 12)  # not eight parts of one length
        with pytest.raises(GalleryError, match="has none. Backfill first"):
            index_new(store, new)
        store.upsert(new, IDS, NEW[:, :12].copy())
        assert index_new(store, new).kind == "IVF_PQ (cosine, num_bits=8)"
        assert index_new(store, new).to_do == 0
        assert len(store.search(new, QUERY[:, :12].copy(), 5).ids[0]) == 5


KILLED = """
import sys
from nobackfill.gallery.stores import open_store
with open_store(sys.argv[1]) as store:
    store.index(sys.argv[2], watch=lambda line: print(line, flush=True))
"""


@pytest.mark.parametrize("after", [0.0, 0.1, 0.3])
def test_lancedb_killed_while_it_builds(lance, after):
    _, line = lance("IvfPq", distance_type="cosine", num_sub_vectors=16)
    with open_store(line) as store:
        new = write_new(store)
        process = subprocess.Popen(
            [sys.executable, "-c", KILLED, line, new], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout.readline().startswith("building IVF_PQ")
        time.sleep(after)
        process.kill()
        process.communicate()
        assert store.count(new) == NUMBER
        assert store.index_of(new) in (None, ("IVF_PQ (cosine, num_sub_vectors=16, num_bits=8)", 0))
        index_new(store, new)
        assert store.index_of(new).lacks == 0
        assert len(store.search(new, QUERY, 10).ids[0]) == 10
        assert sorted(store.scan(new).ids) == sorted(IDS)
