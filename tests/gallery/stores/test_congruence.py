"""Every kind of database answers like the exact one."""

from itertools import chain

import numpy as np
import pytest

from nobackfill.errors import GalleryError
from nobackfill.gallery.stores import open_store
from nobackfill.gallery.stores.base import ours


def whole(store, collection, limit=17):
    """All rows of a collection, page by page."""
    ids, vectors, columns, after = [], [], [], None
    while (rows := store.scan(collection, after=after, limit=limit)).ids:
        assert len(rows.ids) <= limit
        ids += rows.ids
        vectors.append(rows.vectors)
        columns.append(rows.columns)
        after = rows.ids[-1]
    return ids, np.concatenate(vectors) if vectors else None, columns


def test_the_owners_items_are_all_there_once(store, items):
    ids, vectors, columns = items
    assert store.exists(store.main)
    assert not store.exists(ours(store.main, "v2"))
    assert store.count(store.main) == len(ids)
    assert store.dim(store.main) == vectors.shape[1]
    found, got, told = whole(store, store.main)
    assert sorted(found) == sorted(ids)
    assert len(set(found)) == len(found)
    place = {one: row for row, one in enumerate(ids)}
    wanted = vectors[[place[one] for one in found]]
    np.testing.assert_allclose(got, wanted, atol=1e-6)
    if any("colour" in some for some in told):  # indexes of vectors alone store nothing else
        colours = [colour for some in told for colour in some["colour"]]
        assert colours == [columns["colour"][place[one]] for one in found]


def test_pages_of_any_size_give_the_same_order(store):
    assert whole(store, store.main, 1000)[0] == whole(store, store.main, 7)[0]


def test_items_by_id(store, items):
    ids, vectors, _ = items
    rows = store.get(store.main, [*ids[:5], "987654"])
    assert sorted(rows.ids) == sorted(ids[:5])
    for one, row in zip(rows.ids, rows.vectors, strict=True):
        np.testing.assert_allclose(row, vectors[ids.index(one)], atol=1e-6)
    assert store.get(store.main, []).ids == []


@pytest.mark.parametrize("k", [1, 10, 500])
def test_search_finds_what_an_exact_one_finds(store, items, k, agrees):
    ids, vectors, _ = items
    query = np.random.default_rng(1).normal(size=(6, vectors.shape[1])).astype(np.float32) * 3
    found = store.search(store.main, query, k)
    cosines = query @ vectors.T / np.linalg.norm(query, axis=1, keepdims=True)
    for row, (names, scores) in enumerate(zip(found.ids, found.cosines, strict=True)):
        order = (-cosines[row]).argsort()[:k]
        assert agrees(store, names, [ids[place] for place in order])
        if store.exact:
            np.testing.assert_allclose(scores, cosines[row][order], atol=1e-5)


def test_what_we_write_is_ours_and_the_owners_stays(store, items):
    ids, vectors, _ = items
    before = whole(store, store.main)
    new = ours(store.main, "v2")
    store.create(new, 5)
    store.create(new, 5)
    assert store.exists(new)
    assert (store.count(new), store.dim(new)) == (0, 5)
    assert store.scan(new).ids == []
    fresh = np.random.default_rng(2).normal(size=(40, 5)).astype(np.float32)
    store.upsert(new, ids[:40], fresh)
    store.upsert(new, ids[:3], fresh[3:6])  # again, in place of the first
    assert store.count(new) == 40
    got = store.get(new, ids[:6])
    order = [ids.index(one) for one in got.ids]
    np.testing.assert_allclose(got.vectors, fresh[[3, 4, 5, 3, 4, 5]][order], atol=1e-6)
    found = store.search(new, fresh[10:11], 1)
    assert found.ids == [[ids[10]]]
    store.remove(new, [*ids[:10], "987654"])
    assert sorted(whole(store, new)[0]) == sorted(ids[10:40])
    after = whole(store, store.main)
    assert before[0] == after[0]
    np.testing.assert_array_equal(before[1], after[1])
    store.drop(new)
    store.drop(new)
    assert not store.exists(new)


def test_what_we_wrote_is_there_when_opened_again(line, items):
    ids, vectors, _ = items
    with open_store(line) as store:
        new = ours(store.main, "v2")
        store.create(new, vectors.shape[1])
        store.upsert(new, ids[:20], vectors[:20])
        store.note("space", '{"a": "ü"}')
    with open_store(line) as store:
        assert store.count(new) == 20
        assert store.notes() == {"space": '{"a": "ü"}'}


def test_notes_are_kept_replaced_and_removed(store):
    assert store.notes() == {}
    store.note("route", "one")
    store.note("route", "two")
    store.note("log/1", 'quoted "; drop table')
    assert store.notes() == {"route": "two", "log/1": 'quoted "; drop table'}
    store.note("route", None)
    store.note("never there", None)
    assert store.notes() == {"log/1": 'quoted "; drop table'}


def test_only_collections_of_our_own_can_be_written(store, items):
    ids, vectors, _ = items
    for write in (
        lambda: store.create(store.main, 8),
        lambda: store.upsert(store.main, ids[:1], vectors[:1]),
        lambda: store.remove(store.main, ids[:1]),
        lambda: store.drop(store.main),
        lambda: store.drop("another"),
        lambda: store.index(store.main),
    ):
        with pytest.raises(GalleryError, match="never written"):
            write()
    assert store.count(store.main) == len(ids)


def test_read_only_means_no_write_at_all(line, items):
    ids, vectors, _ = items
    with open_store(line, read_only=True) as store:
        new = ours(store.main, "v2")
        for write in (
            lambda: store.create(new, 8),
            lambda: store.upsert(new, ids[:1], vectors[:1]),
            lambda: store.remove(new, ids[:1]),
            lambda: store.drop(new),
            lambda: store.index(new),
            lambda: store.note("route", "x"),
        ):
            with pytest.raises(GalleryError, match="read only"):
                write()
        assert store.notes() == {}
        assert store.search(store.main, vectors[:1], 1).ids == [[ids[0]]]


def test_covered_items_are_counted_one_by_one(store, items):
    ids, vectors, _ = items
    new = ours(store.main, "v2")
    store.create(new, vectors.shape[1])
    assert (store.covered(new), list(chain(*store.id_pages(new)))) == (0, [])
    store.upsert(new, ids[:30], vectors[:30])
    assert store.covered(new) == 30
    assert sorted(chain(*store.id_pages(new))) == sorted(ids[:30])
    assert sorted(chain(*store.id_pages(store.main))) == sorted(ids)
    assert store.covered(store.main) == len(ids)
