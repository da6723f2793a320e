"""No model searches vectors that it was not made for."""

from dataclasses import replace

import numpy as np
import pytest

from nobackfill.errors import DataError, GalleryError, SpaceMismatch
from nobackfill.gallery.base import ours
from nobackfill.gallery.guard import check_model, declare, declared, fingerprint_of
from nobackfill.gallery.stores import open_store
from nobackfill.records import space_of
from nobackfill.space import CompatibleWith, Space
from nobackfill.vectors import Vectors

OLD = Space(dim=8, weights="old")
NEW = Space(dim=8, weights="new", parent=OLD.fingerprint, method="ndpp")


def test_what_nothing_declares_is_refused_unless_assumed(store):
    with pytest.raises(GalleryError, match="--assume-space"):
        check_model(store, store.main, NEW)
    assert "made compatible" in check_model(store, store.main, NEW, OLD.fingerprint)
    assert store.notes() == {}  # nothing was written


def test_a_model_may_ask_what_it_made_was_made_for_or_was_measured_on(store):
    free = replace(NEW, parent=None)
    measured = replace(free, compatible_with=(CompatibleWith(OLD.fingerprint, "mAP", 0.5),))
    assert "itself" in check_model(store, store.main, OLD, OLD.fingerprint)
    assert "by ndpp" in check_model(store, store.main, NEW, OLD.fingerprint)
    assert "mAP 0.5" in check_model(store, store.main, measured, OLD.fingerprint)
    with pytest.raises(SpaceMismatch, match="scores there mean nothing.*evaluate --declare"):
        check_model(store, store.main, free, OLD.fingerprint)
    both = replace(measured, parent=OLD.fingerprint)
    assert "by ndpp; it was measured on them: mAP 0.5" in (
        check_model(store, store.main, both, OLD.fingerprint)
    )
    elsewhere = replace(free, compatible_with=(CompatibleWith("f" * 16, "mAP", 0.9),))
    with pytest.raises(SpaceMismatch, match="mean nothing"):
        check_model(store, store.main, elsewhere, OLD.fingerprint)


def test_our_collections_tell_what_made_them(store):
    new = ours(store.main, "v2")
    store.create(new, 8)
    assert declared(store, new) is None
    declare(store, new, NEW)
    assert declared(store, new) == NEW
    assert check_model(store, new, NEW)
    with pytest.raises(SpaceMismatch, match="mean nothing"):
        check_model(store, new, OLD)
    with pytest.raises(SpaceMismatch, match="what is declared counts"):
        fingerprint_of(store, new, OLD.fingerprint)
    with pytest.raises(GalleryError, match="never written"):
        declare(store, store.main, OLD)


def test_spaces_are_read_from_runs_heads_files_and_records(tmp_path):
    def vectors(space):
        return Vectors(["a"], np.ones((1, 8), dtype=np.float32), space=space)

    run = tmp_path / "run"
    run.mkdir()
    vectors(NEW).save(run / "validation.parquet")
    assert space_of(run) == NEW
    asks = replace(NEW, preprocessing="mapped")
    vectors(asks).save(run / "validation_query.parquet")
    assert space_of(run) == asks  # what asks counts
    head = tmp_path / "head"
    head.mkdir()
    (head / "space.json").write_text(OLD.to_json())
    assert space_of(head) == OLD
    assert space_of(head / "space.json") == OLD
    assert space_of(run / "validation.space.json") == NEW
    vectors(OLD).save(tmp_path / "a.parquet")
    (tmp_path / "a.space.json").unlink()
    assert space_of(tmp_path / "a.parquet") == OLD  # from its own metadata
    vectors(None).save(tmp_path / "b.parquet")
    for nothing in (tmp_path / "b.parquet", tmp_path / "nowhere", tmp_path):
        with pytest.raises(DataError, match="space.json"):
            space_of(nothing)


def test_a_file_tells_itself_what_made_it(tmp_path, items):
    Vectors(items[0], items[1], space=OLD).save(tmp_path / "items.safetensors")
    with open_store(f"flat://{tmp_path / 'items.safetensors'}") as store:
        assert declared(store, store.main) == OLD
        assert "by ndpp" in check_model(store, store.main, NEW)  # nothing need be assumed
        with pytest.raises(SpaceMismatch, match="what is declared counts"):
            check_model(store, store.main, NEW, NEW.fingerprint)
