"""Indexes of faiss of many kinds: which keep vectors, which are exact, which tell cosines."""

import numpy as np
import pytest

faiss = pytest.importorskip("faiss")

from nobackfill.errors import DataError, GalleryError
from nobackfill.gallery.stores import open_store
from nobackfill.gallery.stores.base import ours

NUMBER, DIM = 700, 16
# of each kind: whether it is exact, keeps vectors, and takes ids of one's own
KINDS = {
    "Flat": (True, True, False),
    "IDMap,Flat": (True, True, True),
    "IDMap2,Flat": (True, True, True),
    "IVF8,Flat": (False, True, True),
    "IDMap,IVF8,Flat": (False, True, True),
    "HNSW16": (False, True, False),
    "IDMap,HNSW16": (False, True, True),
    "IDMap,SQfp16": (False, True, True),
    "IVF8,SQfp16": (False, True, True),
    "PQ4x4,RFlat": (False, True, False),
    "IDMap,PQ8x4": (False, False, True),
    "IVF8,PQ8x4": (False, False, True),
    "IDMap,SQ8": (False, False, True),
    "PCA16,Flat": (False, False, False),
}
METRICS = {"inner product": faiss.METRIC_INNER_PRODUCT, "squared distance": faiss.METRIC_L2}


@pytest.fixture(scope="module")
def vectors():
    rows = np.random.default_rng(0).normal(size=(NUMBER, DIM)).astype(np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def build(folder, kind, vectors, metric=faiss.METRIC_INNER_PRODUCT, change=None):
    """An index of a kind; returns its line and ids."""
    index = faiss.index_factory(DIM, kind, metric)
    index.train(vectors)
    if KINDS[kind][2]:
        ids = np.random.default_rng(1).permutation(10 * len(vectors))[: len(vectors)]
        index.add_with_ids(vectors, ids.astype(np.int64))
    else:
        ids = np.arange(len(vectors))
        index.add(vectors)
    if kind.startswith("IVF"):
        index.nprobe = 8
    if change is not None:
        change(index, ids)
    faiss.write_index(index, str(folder / "items.index"))
    return f"faiss://{folder}/items.index", [str(one) for one in ids]


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind(tmp_path, vectors, kind, metric):
    exact, keeps_vectors, _ = KINDS[kind]
    line, ids = build(tmp_path, kind, vectors, METRICS[metric])
    with open_store(line) as store:
        assert (store.exact, store.count(store.main), store.dim(store.main)) == (exact, NUMBER, DIM)
        if keeps_vectors:
            rows = store.scan(store.main, limit=NUMBER)
            assert sorted(rows.ids) == sorted(ids)
            within = 1e-3 if "fp16" in kind else 1e-6
            wanted = vectors[[ids.index(one) for one in rows.ids]]
            np.testing.assert_allclose(rows.vectors, wanted, atol=within)
            some = store.get(store.main, [ids[3], "-5", "x", ids[1]])
            assert sorted(some.ids) == sorted([ids[3], ids[1]])
        else:
            for read in (store.scan, lambda main: store.get(main, ids[:1])):
                with pytest.raises(GalleryError, match="exact ones are not in the index"):
                    read(store.main)
        found = store.search(store.main, vectors[:20] * 5, 10)
        best = [row[0] for row in found.ids]
        assert np.mean([one == own for one, own in zip(best, ids, strict=False)]) > 0.7
        for query, (names, cosines) in enumerate(zip(found.ids, found.cosines, strict=True)):
            true = vectors[[ids.index(one) for one in names]] @ vectors[query]
            np.testing.assert_allclose(cosines, true, atol=1e-5 if exact else 0.5)
            if exact:
                order = (-(vectors @ vectors[query])).argsort()[:10]
                assert names == [ids[place] for place in order]


@pytest.mark.parametrize("metric", METRICS)
def test_vectors_of_other_lengths_tell_no_cosines(tmp_path, vectors, metric):
    line, _ = build(tmp_path, "IDMap,Flat", vectors * 3, METRICS[metric])
    with open_store(line) as store:
        assert len(store.scan(store.main).ids) == NUMBER
        with pytest.raises(
            GalleryError, match=rf"{metric} over vectors of lengths 3 to 3\. Divide"
        ):
            store.search(store.main, vectors[:1], 1)


def test_other_metrics_tell_no_cosines(tmp_path, vectors):
    line, _ = build(tmp_path, "Flat", vectors, faiss.METRIC_L1)
    with open_store(line) as store, pytest.raises(GalleryError, match="another metric"):
        store.search(store.main, vectors[:1], 1)


def test_an_index_of_bits_tells_no_cosines(tmp_path, vectors):
    index = faiss.IndexLSH(DIM, 64)
    index.add(vectors)
    faiss.write_index(index, str(tmp_path / "bits.index"))
    line = f"faiss://{tmp_path}/bits.index"
    with open_store(line) as store, pytest.raises(GalleryError, match="another metric"):
        store.search(store.main, vectors[:1], 1)


def test_fewer_are_found_where_an_index_looks_at_few(tmp_path, vectors):
    def narrow(index, ids):
        index.nprobe = 1

    line, _ = build(tmp_path, "IVF8,Flat", vectors, change=narrow)
    with open_store(line) as store:
        found = store.search(store.main, vectors[:5], NUMBER)
        assert all(0 < len(names) < NUMBER and "-1" not in names for names in found.ids)
        assert [len(row) for row in found.ids] == [len(row) for row in found.cosines]


def test_items_removed_by_their_owner(tmp_path, vectors):
    line, ids = build(
        tmp_path,
        "IDMap,Flat",
        vectors,
        change=lambda index, ids: index.remove_ids(ids[:10].astype(np.int64)),
    )
    with open_store(line) as store:
        assert store.count(store.main) == NUMBER - 10
        rows = store.scan(store.main, limit=NUMBER)
        assert rows.ids == ids[10:]
        np.testing.assert_array_equal(rows.vectors, vectors[10:])
        new = ours(store.main, "v2")
        store.create(new, DIM)
        store.upsert(new, ids[8:12], vectors[8:12])
        assert sorted(store.scan(new).ids) == sorted(ids[10:12])


def test_the_owners_file_is_never_written(tmp_path, vectors):
    line, ids = build(tmp_path, "IVF8,Flat", vectors)
    path = tmp_path / "items.index"
    before = path.read_bytes(), path.stat().st_mtime_ns
    with open_store(line) as store:
        store.scan(store.main)
        store.create(ours(store.main, "v2"), DIM)
        store.upsert(ours(store.main, "v2"), ids, vectors)
        with pytest.raises(GalleryError, match="keeps them together"):
            store.retire(ours(store.main, "v2"))
    assert before == (path.read_bytes(), path.stat().st_mtime_ns)


def test_an_id_of_two_vectors(tmp_path, vectors):
    index = faiss.index_factory(DIM, "IDMap,Flat")
    index.add_with_ids(vectors[:2], np.array([7, 7]))
    faiss.write_index(index, str(tmp_path / "double.index"))
    with pytest.raises(GalleryError, match="2 vectors of 1 ids"):
        open_store(f"faiss://{tmp_path}/double.index")


def test_an_empty_index(tmp_path):
    faiss.write_index(faiss.IndexFlatIP(DIM), str(tmp_path / "empty.index"))
    with open_store(f"faiss://{tmp_path}/empty.index") as store:
        assert (store.count("empty"), store.scan("empty").ids) == (0, [])
        assert store.search("empty", np.ones((2, DIM), dtype=np.float32), 3).ids == [[], []]


def test_files_that_are_no_index(tmp_path):
    (tmp_path / "text").write_text("nothing of the kind, but long enough to be looked into")
    with pytest.raises(GalleryError, match=r"written by `faiss.write_index`"):
        open_store(f"faiss://{tmp_path}/text")
    with pytest.raises(DataError, match="no such file"):
        open_store(f"faiss://{tmp_path}/nothing")


def test_queries_of_other_dimensions(tmp_path, vectors):
    line, _ = build(tmp_path, "Flat", vectors)
    with open_store(line) as store, pytest.raises(GalleryError, match="16 dimensions"):
        store.search(store.main, vectors[:1, :5], 1)
