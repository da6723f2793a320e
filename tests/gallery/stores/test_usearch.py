"""Indexes of USearch of several metrics and precisions."""

import numpy as np
import pytest

pytest.importorskip("usearch")

from usearch.index import Index  # noqa: E402

from nobackfill.errors import DataError, GalleryError
from nobackfill.gallery.stores import open_store
from nobackfill.gallery.stores.base import ours

NUMBER, DIM = 400, 16


@pytest.fixture(scope="module")
def vectors():
    rows = np.random.default_rng(0).normal(size=(NUMBER, DIM)).astype(np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def build(folder, vectors, change=None, **options):
    """An index; returns its line and ids, of which the largest is beyond int64."""
    ids = np.random.default_rng(1).permutation(5000)[: len(vectors)].astype(np.uint64)
    if len(ids):
        ids[0] = 2**63 + 5
    index = Index(ndim=DIM, **options)
    index.add(ids, vectors, threads=1)
    if change is not None:
        change(index, ids)
    index.save(str(folder / "items.usearch"))
    return f"usearch://{folder}/items.usearch", [str(one) for one in ids.tolist()]


@pytest.mark.parametrize("metric", ["cos", "ip", "l2sq"])
@pytest.mark.parametrize(("dtype", "within"), [("f32", 1e-6), ("f16", 1e-3), ("bf16", 5e-3)])
def test_every_metric_and_precision(tmp_path, vectors, metric, dtype, within):
    line, ids = build(tmp_path, vectors, metric=metric, dtype=dtype)
    with open_store(line) as store:
        assert (store.exact, store.count(store.main), store.dim(store.main)) == (False, NUMBER, DIM)
        rows = store.scan(store.main, limit=NUMBER)
        assert rows.ids == sorted(ids, key=int)
        wanted = vectors[[ids.index(one) for one in rows.ids]]
        np.testing.assert_allclose(rows.vectors, wanted, atol=within)
        for some in (vectors[:20] * 5, vectors[:1]):
            found = store.search(store.main, some, 10)
            assert [row[0] for row in found.ids] == ids[: len(some)]
            for query, (names, cosines) in enumerate(zip(found.ids, found.cosines, strict=True)):
                true = vectors[[ids.index(one) for one in names]] @ vectors[query]
                np.testing.assert_allclose(cosines, true, atol=5 * within)


def test_a_compressed_index_is_searched_and_not_read(tmp_path, vectors):
    line, ids = build(tmp_path, vectors, metric="cos", dtype="i8")
    with open_store(line) as store:
        found = store.search(store.main, vectors[:3], 5)
        assert [row[0] for row in found.ids] == ids[:3]
        with pytest.raises(GalleryError, match="exact ones are not in the index: USearch in I8"):
            store.scan(store.main)


@pytest.mark.parametrize("metric", ["ip", "l2sq"])
def test_vectors_of_other_lengths_tell_no_cosines(tmp_path, vectors, metric):
    line, _ = build(tmp_path, vectors * 2, metric=metric, dtype="f32")
    with open_store(line) as store, pytest.raises(GalleryError, match="lengths 2 to 2. Divide"):
        store.search(store.main, vectors[:1], 1)


def test_any_length_has_a_cosine(tmp_path, vectors):
    line, ids = build(tmp_path, vectors * 2, metric="cos", dtype="f32")
    with open_store(line) as store:
        found = store.search(store.main, vectors[:1], 1)
        assert found.ids == [[ids[0]]]
        np.testing.assert_allclose(found.cosines, [[1.0]], atol=1e-6)


def test_other_metrics_tell_no_cosines(tmp_path, vectors):
    line, _ = build(tmp_path, vectors, metric="pearson", dtype="f32")
    with open_store(line) as store, pytest.raises(GalleryError, match="metric=.cos"):
        store.search(store.main, vectors[:1], 1)


def test_items_removed_by_their_owner(tmp_path, vectors):
    line, ids = build(tmp_path, vectors, lambda index, ids: index.remove(ids[3]), metric="cos")
    with open_store(line) as store:
        kept = sorted(set(ids) - {ids[3]}, key=int)
        assert store.scan(store.main, limit=NUMBER).ids == kept
        behind = [one for one in kept if int(one) > int(ids[3])]
        assert store.scan(store.main, after=ids[3], limit=2).ids == behind[:2]
        assert store.scan(store.main, after=kept[-1]).ids == []
        with pytest.raises(GalleryError, match="Start again"):
            store.scan(store.main, after="photo")
        new = ours(store.main, "v2")
        store.create(new, DIM)
        store.upsert(new, ids[2:5], vectors[2:5])
        assert sorted(store.scan(new).ids) == sorted([ids[2], ids[4]])


def test_an_empty_index(tmp_path, vectors):
    line, _ = build(tmp_path, vectors[:0], metric="cos", dtype="f32")
    with open_store(line) as store:
        assert (store.count(store.main), store.scan(store.main).ids) == (0, [])
        assert store.search(store.main, vectors[:2], 3).ids == [[], []]


def test_an_index_of_many_vectors_for_a_key(tmp_path, vectors):
    line, _ = build(tmp_path, vectors, metric="cos", multi=True)
    with pytest.raises(GalleryError, match="multi=True"):
        open_store(line)


def test_files_that_are_no_index(tmp_path):
    (tmp_path / "text").write_text("nothing of the kind, but long enough to be looked into" * 9)
    with pytest.raises(GalleryError, match="written by USearch's `save`"):
        open_store(f"usearch://{tmp_path}/text")
    with pytest.raises(DataError, match="no such file"):
        open_store(f"usearch://{tmp_path}/nothing")
