"""Galleries in files: what their owner removes between two commands."""

import numpy as np
import pytest

from nobackfill.errors import DataError, GalleryError
from nobackfill.gallery.stores import open_store
from nobackfill.gallery.stores.base import ours
from nobackfill.vectors import Vectors


@pytest.fixture
def path(tmp_path, items):
    ids, vectors, columns = items
    path = tmp_path / "items.safetensors"
    Vectors(ids, vectors, columns=columns).save(path)
    return path


def without(path, items, gone):
    """Saves the file again, without some items."""
    ids, vectors, _ = items
    kept = [row for row, one in enumerate(ids) if one not in gone]
    Vectors([ids[row] for row in kept], vectors[kept]).save(path)


def test_items_that_their_owner_removed_are_not_written(path, items):
    ids, vectors, _ = items
    without(path, items, ids[:3])
    with open_store(f"flat://{path}") as store:
        new = ours(store.main, "v2")
        store.create(new, 8)
        store.upsert(new, ids[:5], vectors[:5])
        rows = store.get(new, ids[:5])
        assert sorted(rows.ids) == sorted(ids[3:5])
        for one, row in zip(rows.ids, rows.vectors, strict=True):
            np.testing.assert_array_equal(row, vectors[ids.index(one)])
        store.upsert(new, ids[:3], vectors[:3])  # none of them is there
        assert store.count(new) == 2
        assert store.contained(store.main, ids[:5]) == set(ids[3:5])
        assert store.contained(new, ids[2:4]) == {ids[3]}


def test_a_scan_cannot_go_on_after_an_item_that_is_gone(path, items):
    ids, _, _ = items
    without(path, items, ids[9:10])
    with open_store(f"flat://{path}") as store:
        assert store.scan(store.main, after=ids[8], limit=1).ids == [ids[10]]
        with pytest.raises(GalleryError, match=f"after the item `{ids[9]}`.*Start again"):
            store.scan(store.main, after=ids[9])


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(DataError, match="no such file"):
        open_store(f"flat://{tmp_path}/nothing.npy")


@pytest.mark.parametrize(("mode", "wanted"), [(0o600, 0o600), (0o640, 0o640), (0o444, 0o644)])
def test_new_vectors_are_read_by_those_who_may_read_the_gallery(path, mode, wanted):
    path.chmod(mode)
    with open_store(f"flat://{path}") as store:
        store.note("a", "b")
        store.note("a", "c")
    assert path.with_name(f"{path.name}.nobackfill").stat().st_mode & 0o777 == wanted
