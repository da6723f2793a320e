"""No model searches vectors that it was not made for, and none is served without a measurement."""

import json
from dataclasses import replace

import numpy as np
import pytest

from nobackfill.errors import DataError, GalleryError, SpaceMismatch
from nobackfill.gallery.guard import (
    Standing,
    check_model,
    check_standing,
    measured_in_training,
    standing_of,
)
from nobackfill.gallery.provenance import declare, declared, fingerprint_of
from nobackfill.gallery.stores import open_store
from nobackfill.gallery.stores.base import ours
from nobackfill.vectors import Vectors
from nobackfill.vectors.records import space_of
from nobackfill.vectors.space import CompatibleWith, Space

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
    vectors(OLD).save(tmp_path / "a.parquet")
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


@pytest.fixture
def flat(fill_with):
    with open_store(fill_with("flat")) as opened:
        yield opened


MEASURED = CompatibleWith(OLD.fingerprint, "mAP", 0.5)
ELSEWHERE = CompatibleWith("f" * 16, "mAP", 0.9)
FREE = replace(NEW, parent=None)
WORDS = {
    "itself": "the model made these vectors itself",
    "never measured": "fitted or trained to be compatible, never measured",
}


@pytest.mark.parametrize(
    ("model", "training", "verdict"),
    [
        (OLD, None, "itself"),
        (NEW, None, "never measured"),
        (NEW.with_measured(ELSEWHERE), None, "never measured"),
        (NEW.with_measured(ELSEWHERE, compatible=False), None, "never measured"),
        (NEW.with_measured(MEASURED), None, "compatible"),
        (FREE.with_measured(MEASURED), None, "compatible"),
        (NEW.with_measured(MEASURED, compatible=False), None, "not compatible"),
        (FREE.with_measured(MEASURED, compatible=False), None, "not compatible"),
        (NEW, "compatible", "compatible"),
        (NEW, "undecided", "undecided"),
        (NEW, "not compatible", "not compatible"),
        # what was declared counts before what training came to
        (NEW.with_measured(MEASURED), "not compatible", "compatible"),
        (NEW.with_measured(MEASURED, compatible=False), "compatible", "not compatible"),
    ],
)
def test_what_was_measured_is_told_from_what_was_meant(flat, model, training, verdict):
    trained = Standing(training, "it was measured when it was trained") if training else None
    found = standing_of(flat, flat.main, model, OLD.fingerprint, training=trained)
    assert found.verdict == verdict
    declared = bool(model.compatible_with or model.not_compatible_with) and "measured on them" in (
        found.reason
    )
    assert found.declared is declared
    assert found.may_search is not (declared and verdict == "not compatible")
    if verdict in WORDS:
        assert found.in_words == WORDS[verdict]
    else:
        assert found.in_words == f"measured: {verdict}"


def test_a_model_that_was_measured_not_to_be_compatible_does_not_ask(flat):
    for model in (NEW, FREE):
        refused = model.with_measured(MEASURED, compatible=False)
        with pytest.raises(SpaceMismatch, match="is not compatible: .*mAP 0.5.*Train or fit"):
            check_model(flat, flat.main, refused, OLD.fingerprint)
    unmeasured = NEW.with_measured(ELSEWHERE, compatible=False)
    assert "by ndpp" in check_model(flat, flat.main, unmeasured, OLD.fingerprint)


def test_training_tells_nothing_of_other_galleries(flat):
    trained = Standing("compatible", "it was measured when it was trained")
    with pytest.raises(SpaceMismatch, match="mean nothing"):
        standing_of(flat, flat.main, FREE, OLD.fingerprint, training=trained)


@pytest.mark.parametrize(
    ("verdict", "declared", "refused", "strictly"),
    [
        ("itself", False, None, None),
        ("compatible", True, None, None),
        ("compatible", False, None, None),
        ("undecided", False, None, GalleryError),
        ("never measured", False, None, GalleryError),
        ("not compatible", False, None, GalleryError),
        ("not compatible", True, SpaceMismatch, SpaceMismatch),
    ],
)
def test_what_was_declared_counts_and_the_strict_want_a_measurement(
    verdict, declared, refused, strictly
):
    standing = Standing(verdict, "so it was", declared)
    for error, strict in ((refused, False), (strictly, True)):
        if error is None:
            check_standing(standing, "photos", strict=strict)
            continue
        with pytest.raises(error, match="`photos`.*so it was") as told:
            check_standing(standing, "photos", strict=strict)
        if error is GalleryError:
            assert "evaluate --declare`), or leave out --strict" in str(told.value)


def test_a_run_keeps_what_it_was_measured_at(tmp_path):
    assert measured_in_training(tmp_path) is None
    assert measured_in_training(tmp_path / "new.parquet") is None
    numbers = {"old_old": 0.2, "new_old": 0.3, "new_new": 0.4, "verdict": "undecided"}
    (tmp_path / "evaluation.json").write_text(json.dumps(numbers))
    found = measured_in_training(tmp_path)
    assert found.verdict == "undecided"
    assert found.reason == (
        "it was measured when it was trained: mAP old/old 20.00, new/old 30.00, new/new 40.00: "
        "undecided"
    )
    for broken in ("{", "[]", '{"old_old": 0.2, "verdict": "compatible"}'):
        (tmp_path / "evaluation.json").write_text(broken)
        with pytest.raises(DataError, match="evaluation.json.*Remove it: the run is then"):
            measured_in_training(tmp_path)
    for unmeasured in ("{}", '{"verdict": "compatible"}'):  # of a model without an old one
        (tmp_path / "evaluation.json").write_text(unmeasured)
        assert measured_in_training(tmp_path) is None


def test_texts_and_images_are_compatible_in_all_directions_or_not_at_all(tmp_path):
    numbers = {"old_old": 0.2, "new_old": 0.3, "new_new": 0.4}
    summary = {
        **numbers, "verdict": "compatible", "direction": "text_to_image",
        "tests": {"image_to_text": {**numbers, "verdict": "not compatible"}},
    }  # fmt: skip
    (tmp_path / "evaluation.json").write_text(json.dumps(summary))
    assert measured_in_training(tmp_path).verdict == "not compatible"


def test_a_short_record_takes_its_dimensions_from_the_gallery(flat, tmp_path):
    record = tmp_path / "shop.space.json"
    record.write_text('{"name": "resnet50, March 2024"}')
    short = Space(8, "resnet50, March 2024", normalized=None, dtype=None)
    model = replace(NEW, parent=short.fingerprint)
    assert fingerprint_of(flat, flat.main, str(record)) == short.fingerprint
    assert "by ndpp" in check_model(flat, flat.main, model, str(record))
    assert "itself" in check_model(flat, flat.main, space_of(record), str(record))
    known = Space(8, "resnet50, March 2024")  # of which more is known: it may be another
    with pytest.raises(SpaceMismatch, match="mean nothing"):
        check_model(flat, flat.main, known, str(record))
    record.write_text('{"weights": "resnet50, March 2024", "dim": 4}')
    with pytest.raises(SpaceMismatch, match="mean nothing"):
        check_model(flat, flat.main, model, str(record))


@pytest.mark.parametrize("normalized", [False, True, None])
def test_what_names_no_model_is_the_same_as_nothing(flat, tmp_path, items, normalized):
    nobody = Space(8, normalized=normalized)
    made_for_nobody = replace(NEW, parent=nobody.fingerprint)
    record = tmp_path / "nobody.space.json"
    record.write_text(nobody.to_json())
    for assumed in (nobody.fingerprint, str(record)):
        for model in (nobody, made_for_nobody):
            with pytest.raises(GalleryError, match=r"any vectors of 8 dimensions.*\{\"name\": "):
                check_model(flat, flat.main, model, assumed)
    Vectors(items[0], items[1], space=nobody).save(tmp_path / "nobody.safetensors")
    with open_store(f"flat://{tmp_path / 'nobody.safetensors'}") as store:
        with pytest.raises(GalleryError, match="Nothing declares"):
            check_model(store, store.main, nobody)
        assert "by ndpp" in check_model(store, store.main, NEW, OLD.fingerprint)


def test_errors_show_what_to_write(flat, tmp_path):
    with pytest.raises(GalleryError, match=r"--assume-space.*as short as \{\"name\": "):
        check_model(flat, flat.main, NEW)
    for told, says in (
        (tmp_path / "nowhere", "no space.json"),
        (tmp_path / "a.space.json", "lacks"),
    ):
        if says == "lacks":
            told.write_text('{"dim": 8}')
        with pytest.raises(DataError, match=says + r".*NAME\.space\.json.*\{\"name\": "):
            check_model(flat, flat.main, NEW, str(told))


def test_a_collection_that_is_not_there_is_not_asked(flat):
    with pytest.raises(GalleryError, match="no such collection. Backfill it first"):
        check_model(flat, ours(flat.main, "v9"), NEW, OLD.fingerprint)
