"""A gallery is recognised by some of its vectors, however they are stored."""

import json
from dataclasses import replace

import numpy as np
import pytest

from nobackfill.errors import GalleryError
from nobackfill.gallery.backfill import FromFile, backfill, check_plan
from nobackfill.gallery.cleanup import remove_new
from nobackfill.gallery.planning.plan_file import BackfillPlan
from nobackfill.gallery.provenance import space_key
from nobackfill.gallery.sketch import Sketch, check_written_for, compare, is_other, keep, spread
from nobackfill.gallery.status import status_of
from nobackfill.gallery.stores import open_store
from nobackfill.gallery.stores.base import Rows, ours
from nobackfill.vectors import Vectors
from nobackfill.vectors.space import Space

DIM, NEW = 64, Space(dim=5, weights="new")
IDS = [str(number) for number in range(16)]


def normal(seed, number=16, dim=DIM):
    return np.random.default_rng(seed).normal(size=(number, dim)).astype(np.float32)


def bfloat16(vectors):
    bits = np.ascontiguousarray(vectors).view(np.uint32)
    return (bits & 0xFFFF0000).view(np.float32)


STORED = {
    "as it was": lambda vectors: vectors,
    "float16": lambda vectors: vectors.astype(np.float16).astype(np.float32),
    "bfloat16": bfloat16,
    "unit length": lambda vectors: vectors / np.linalg.norm(vectors, axis=1, keepdims=True),
    "unit length in float16": lambda vectors: (
        (vectors / np.linalg.norm(vectors, axis=1, keepdims=True))
        .astype(np.float16)
        .astype(np.float32)
    ),
}


@pytest.mark.parametrize("how", STORED)
@pytest.mark.parametrize("common", [0.0, 10.0])  # with 10, all cosines are above 0.98
def test_precision_and_length_do_not_matter(how, common):
    vectors = normal(0) + common
    sketch = Sketch.of(IDS, vectors)
    assert sketch.agreement(Rows(IDS, STORED[how](vectors), {})) == (16, 16)


@pytest.mark.parametrize("common", [0.0, 10.0])
@pytest.mark.parametrize("dim", [6, DIM, 512])
def test_vectors_of_other_items_or_of_another_model_are_not_the_same(common, dim):
    sketch = Sketch.of(IDS, normal(0, dim=dim) + common)
    for seed in range(1, 41):
        assert is_other(*sketch.agreement(Rows(IDS, normal(seed, dim=dim) + common, {})))
    rotated, _ = np.linalg.qr(normal(1, dim, dim))
    assert is_other(*sketch.agreement(Rows(IDS, normal(0, dim=dim) @ rotated, {})))
    assert is_other(*sketch.agreement(Rows(IDS, np.roll(normal(0, dim=dim), 1, axis=0), {})))


def test_other_dimensions_are_another_gallery():
    assert Sketch.of(IDS, normal(0)).agreement(Rows(IDS, normal(0)[:, :32], {})) == (0, 16)


def test_items_that_are_gone_do_not_count_and_a_few_may_be_replaced():
    sketch, vectors = Sketch.of(IDS, normal(0)), normal(0)
    assert sketch.agreement(Rows(IDS[3:], vectors[3:], {})) == (13, 13)
    vectors[:2] = np.nan  # items without a vector
    vectors[2:6] = normal(7)[:4]
    assert sketch.agreement(Rows(IDS, vectors, {})) == (10, 14)
    assert not is_other(10, 14)
    assert not is_other(0, 0)
    assert is_other(0, 1)


def test_copies_of_one_vector_are_still_the_gallery():
    vectors = np.repeat(normal(0, 1), 16, axis=0)
    sketch = Sketch.of(IDS, vectors)
    assert sketch.agreement(Rows(IDS, vectors.astype(np.float16).astype(np.float32), {})) == (
        16,
        16,
    )


def test_digests_never_change():
    digest = Sketch.of(["a"], np.arange(1.0, 5.0, dtype=np.float32)[None]).digests["a"]
    assert (len(digest), digest[:16]) == (128, "62056a045921d831")


def test_a_sketch_is_of_items_of_the_whole_order():
    assert spread(0) == []
    assert spread(1) == [0]
    assert (spread(1000)[0], spread(1000)[-1], len(set(spread(1000)))) == (0, 999, 16)


# In every kind of database


@pytest.fixture
def plan(items):
    ids, vectors, _ = items
    sketch = Sketch.of([ids[place] for place in spread(len(ids))], vectors[spread(len(ids))])
    return BackfillPlan(
        np.array(ids), np.zeros(len(ids)), "random", "", {}, None, "", None, {}, old_sketch=sketch
    )


@pytest.fixture
def fresh(items):
    return Vectors(items[0], normal(9, len(items[0]), 5), space=NEW)


def test_a_gallery_is_recognised(store, items, plan):
    assert compare(store, plan.old_sketch) == (16, 16)
    assert compare(store, replace(plan.old_sketch, dim=5)) == (0, 16)
    unknown = Sketch.of(["987654"], items[1][:1])
    assert compare(store, unknown) == (0, 0)


def test_a_plan_of_another_gallery_writes_nothing(store, items, plan, fresh):
    """Its ids are row numbers, which every gallery has."""
    foreign = replace(plan, old_sketch=Sketch.of(list(plan.old_sketch.digests), normal(3, dim=8)))
    new = ours(store.main, "v2")
    with pytest.raises(
        GalleryError, match="another gallery than .*of 16 old vectors .*, [0-7] are"
    ):
        backfill(store, new, items[0], FromFile(fresh), plan=foreign)
    assert not store.exists(new)
    assert store.notes() == {}
    assert backfill(store, new, items[0][:20], FromFile(fresh), plan=plan).notes == ()
    check_written_for(store, new)


def test_new_vectors_of_another_gallery_are_not_served(store, items, plan, fresh):
    new = ours(store.main, "v2")
    backfill(store, new, items[0][:20], FromFile(fresh), plan=plan)
    check_written_for(store, ours(store.main, "v3"))  # written without a plan
    keep(store, new, Sketch.of(list(plan.old_sketch.digests), normal(3, dim=8)))
    with pytest.raises(GalleryError, match=r"written for other items: of 16 .*gallery clean"):
        check_written_for(store, new)
    remove_new(store, new)
    check_written_for(store, new)  # nothing is left of it
    assert not any(key.startswith("sketch/") for key in store.notes())


def test_an_items_own_new_vectors_are_required(store, items, plan, fresh):
    """Another file has vectors of the same model under the same row numbers."""
    ids, rows = items[0], fresh.vectors.numpy()
    some = spread(len(ids))
    sketch = Sketch.of([ids[place] for place in some], rows[some], NEW.fingerprint)
    plan = replace(plan, new_sketch=sketch)
    for other in (np.roll(rows, 1, axis=0), normal(8, len(ids), 5)):
        foreign = FromFile(Vectors(ids, other, space=NEW))
        with pytest.raises(GalleryError, match="of other items than the plan"):
            check_plan(store, ids, foreign, plan)
    assert check_plan(store, ids, FromFile(fresh), plan) == ()
    part = FromFile(fresh.select(np.arange(50)))
    assert check_plan(store, ids, part, plan) == ()


class OfModel:
    """New vectors that a model makes as they are needed."""

    def __init__(self, space):
        self.space, self.dim = space, 5

    def make(self, ids):
        raise AssertionError("nothing is embedded to check a plan")


@pytest.mark.parametrize("declared", [True, False])
def test_a_plan_by_new_vectors_is_taken_with_those_alone(store, items, plan, fresh, declared):
    """Those of another model have another best order, and other gains."""
    ids, rows, some = items[0], fresh.vectors.numpy(), spread(len(items[0]))
    space = NEW.fingerprint if declared else None
    sketch = Sketch.of([ids[place] for place in some], rows[some], space)
    informed = replace(plan, new_sketch=sketch, order="informed")
    later = replace(NEW, weights="later")
    other = Vectors(ids, normal(8, len(ids), 5), space=later)
    for source in (FromFile(other), OfModel(later)):
        with pytest.raises(GalleryError, match="made from new vectors of .* it says nothing"):
            check_plan(store, ids, source, informed)
        (note,) = check_plan(store, ids, source, replace(informed, order="planned"))
        assert "its order holds, by old vectors alone, but its gains do not" in note
    # The same vectors are the same, whatever their record says.
    assert check_plan(store, ids, FromFile(replace(fresh, space=later)), informed) == ()
    if declared:
        assert check_plan(store, ids, OfModel(NEW), informed) == ()


def test_status_says_that_the_owner_has_other_vectors_now(store, items, plan, fresh, fill_with):
    new = ours(store.main, "v2")
    backfill(store, new, items[0][:20], FromFile(fresh), plan=plan)
    assert [one.problem for one in status_of(store).collections] == [None, None]
    keep(store, new, Sketch.of(list(plan.old_sketch.digests), normal(3, dim=8)))
    main, other = status_of(store).collections
    assert main.problem is None
    assert "were written for other items: of 16 old vectors of then" in other.problem


def test_status_tells_of_a_file_that_was_embedded_again(tmp_path, items, plan, fresh, command):
    """By another model: whatever was backfilled for the vectors of before is of no use."""
    path = tmp_path / "items.parquet"
    ids, vectors, _ = items
    old = Vectors(ids, vectors, space=Space(dim=8, weights="old"))
    old.save(path)
    with open_store(f"flat://{path}") as store:
        backfill(store, ours(store.main, "v2"), ids, FromFile(fresh), plan=plan)
    code, _, errors = command("gallery", "status", f"flat://{path}")
    assert (code, errors) == (0, "")
    again = Vectors(ids, normal(4, len(ids), 8), space=Space(dim=8, weights="again"))
    again.save(path)
    code, _, errors = command("gallery", "status", f"flat://{path}")
    assert code == 0
    assert "`items__nobackfill_v2` were written for other items" in " ".join(errors.split())


def test_models_are_compared_where_vectors_cannot_be(tmp_path, items, plan, fresh):
    faiss = pytest.importorskip("faiss")
    ids, vectors, _ = items
    index = faiss.IndexIDMap(faiss.IndexScalarQuantizer(8, faiss.ScalarQuantizer.QT_4bit))
    index.train(vectors)
    index.add_with_ids(vectors, np.array(ids, dtype=np.int64))
    faiss.write_index(index, str(tmp_path / "items.faiss"))
    old = Space(dim=8, weights="old")
    with open_store(f"faiss://{tmp_path / 'items.faiss'}") as store:
        new = ours(store.main, "v2")
        of_old = replace(plan, old_sketch=replace(plan.old_sketch, space=old.fingerprint))
        backfill(store, new, ids, FromFile(fresh), plan=of_old)
        check_written_for(store, new)  # nothing declares the owner's
        store.note(space_key(store.main), json.dumps(old.to_record()))
        check_written_for(store, new)
        store.note(space_key(store.main), json.dumps(replace(old, weights="x").to_record()))
        with pytest.raises(GalleryError, match="written next to old ones of the space"):
            check_written_for(store, new)
        assert "written next to old ones" in status_of(store).collections[1].problem


def test_a_plan_without_a_sketch_is_taken_with_a_note(store, items, plan, fresh):
    earlier = replace(plan, old_sketch=None)
    work = backfill(store, ours(store.main, "v2"), items[0], FromFile(fresh), plan=earlier)
    assert (work.done, len(work.notes)) == (len(items[0]), 1)
    assert "earlier version made the plan" in work.notes[0]


def test_compressed_vectors_cannot_be_compared(tmp_path, items, plan, fresh):
    faiss = pytest.importorskip("faiss")
    ids, vectors, _ = items
    index = faiss.IndexIDMap(faiss.IndexScalarQuantizer(8, faiss.ScalarQuantizer.QT_4bit))
    index.train(vectors)
    index.add_with_ids(vectors, np.array(ids, dtype=np.int64))
    faiss.write_index(index, str(tmp_path / "items.faiss"))
    with open_store(f"faiss://{tmp_path / 'items.faiss'}") as store:
        work = backfill(store, ours(store.main, "v2"), ids, FromFile(fresh), plan=plan)
        assert "no old vector could be compared" in work.notes[0]
