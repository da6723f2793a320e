"""A model is declared compatible if and only if it was measured to be, and by its own queries."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

import nobackfill as nb
from nobackfill.core import atomic_files as files
from nobackfill.errors import DataError, SpaceMismatch
from nobackfill.evaluation.declare import declare_compatible, measurement, metric_of
from nobackfill.head import CompatibleHead
from nobackfill.vectors.beside import path_beside
from nobackfill.vectors.records import read_space, record_of, space_of
from nobackfill.vectors.space import CompatibleWith, Space

LABELS = np.arange(240) % 24
OLD = Space(dim=8, weights="old")
NEW = Space(dim=8, weights="new", parent="another", method="ndpp")


def vectors(seed, noise, space, centres=0):
    """Vectors around the centres of 24 classes: the less noise, the better a model."""
    centre = torch.randn(24, 8, generator=torch.Generator().manual_seed(centres))
    drawn = torch.randn(240, 8, generator=torch.Generator().manual_seed(seed))
    return nb.Vectors(np.arange(240), centre[LABELS] + noise * drawn, LABELS, space=space)


GALLERY = vectors(1, 1.2, OLD)
BETTER = vectors(2, 0.4, NEW)
STRANGER = vectors(3, 0.4, NEW, centres=9)
ALIKE = nb.Vectors(np.arange(240), 2 * GALLERY.vectors, LABELS, space=NEW)


@pytest.fixture
def file(tmp_path):
    BETTER.save(tmp_path / "new.parquet")
    return tmp_path / "new.parquet"


def told_by(folder):
    """All files of a folder, and what is in them."""
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_what_is_written_is_new_old_on_the_space_of_the_old_gallery(file):
    result = nb.evaluate(GALLERY, BETTER)
    before = told_by(file.parent)
    measured = declare_compatible(file, result)
    assert measured == CompatibleWith(OLD.fingerprint, "mAP", result.summary()["new_old"])
    assert result.summary()["new_old"] not in (
        result.summary()["old_old"],
        result.summary()["new_new"],
    )
    assert read_space(file) == replace(NEW, compatible_with=(measured,))  # and nothing else
    assert read_space(file).fingerprint == NEW.fingerprint
    record = path_beside(file)
    assert {k: v for k, v in told_by(file.parent).items() if k != record} == {
        k: v for k, v in before.items() if k != record
    }


def test_a_second_measurement_replaces_the_first_and_others_stay(file):
    other = vectors(4, 1.5, replace(OLD, weights="other"))
    first = declare_compatible(file, nb.evaluate(GALLERY, BETTER))
    second = declare_compatible(file, nb.evaluate(other, BETTER))
    assert read_space(file).compatible_with == (first, second)
    again = declare_compatible(file, nb.evaluate(GALLERY, BETTER, protocol="gldv2"))
    assert again.metric == "mAP@100"
    assert set(read_space(file).compatible_with) == {second, again}


@pytest.mark.parametrize(
    ("new", "verdict", "says"),
    [
        (STRANGER, "not compatible", "Keep the old model, or embed the gallery again"),
        (ALIKE, "undecided", "more queries, of more classes"),
    ],
    ids=["worse", "alike"],
)
def test_nothing_else_than_compatible_is_written(file, new, verdict, says):
    before, result = told_by(file.parent), nb.evaluate(GALLERY, new)
    assert result.verdict == verdict
    with pytest.raises(SpaceMismatch, match=f"the verdict is {verdict}: .*{says}") as refused:
        declare_compatible(file, result)
    for pair in ("new_old", "old_old"):
        assert f"{result.summary()[pair]:.4f}" in str(refused.value)
    assert told_by(file.parent) == before


def test_a_better_mean_that_may_be_chance_is_not_enough(file):
    few = np.flatnonzero(LABELS < 4)  # classes too few for an interval
    result = nb.evaluate(GALLERY.select(few), BETTER.select(few))
    assert result.compatible
    with pytest.raises(SpaceMismatch, match="undecided"):
        declare_compatible(file, result)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (None, NEW, "old vectors, but they declare no space"),
        (OLD, None, "new queries, but they declare no space"),
        (Space(dim=8), NEW, "old vectors, but their .*any vectors of 8 dimensions"),
    ],
)
def test_files_that_do_not_say_what_made_them_declare_nothing(file, old, new, says):
    before = told_by(file.parent)
    result = nb.evaluate(vectors(1, 1.2, old), vectors(2, 0.4, new))
    assert result.verdict == "compatible"
    with pytest.raises(DataError, match=says):
        declare_compatible(file, result)
    assert told_by(file.parent) == before


def test_another_model_than_that_of_the_queries_is_refused(tmp_path, file):
    vectors(2, 0.4, replace(NEW, weights="third")).save(tmp_path / "third.parquet")
    before, result = told_by(tmp_path), nb.evaluate(GALLERY, BETTER)
    with pytest.raises(SpaceMismatch, match=r"third\.parquet is of .*Pass the run, the head"):
        declare_compatible(tmp_path / "third.parquet", result)
    with pytest.raises(DataError, match=r"there is no space\.json"):
        declare_compatible(tmp_path / "nowhere", result)
    assert told_by(tmp_path) == before


def test_mapped_queries_are_what_is_declared(tmp_path):
    """Where a model maps its queries, its gallery vectors are of another space."""
    stored = replace(NEW, weights="rm", parent=None)
    mapped = replace(stored, preprocessing="mapped")
    result = nb.evaluate(
        GALLERY, vectors(5, 0.4, stored, centres=9), query_for_old=vectors(2, 0.4, mapped)
    )
    vectors(5, 0.4, stored, centres=9).save(tmp_path / "validation.parquet")
    with pytest.raises(SpaceMismatch, match="--query-for-old"):
        declare_compatible(tmp_path, result)
    vectors(2, 0.4, mapped).save(tmp_path / "validation_query.parquet")
    declare_compatible(str(tmp_path), result)
    assert space_of(tmp_path).compatible_with == (measurement(result),)
    assert read_space(tmp_path / "validation.parquet") == stored


def test_a_record_that_cannot_be_written_stays_as_it_was(file, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    before, result = told_by(file.parent), nb.evaluate(GALLERY, BETTER)
    monkeypatch.setattr(files.os, "replace", full)
    with pytest.raises(DataError, match="No space left on device. What was there is unchanged"):
        declare_compatible(file, result)
    assert told_by(file.parent) == before


@pytest.mark.parametrize("suffix", [".parquet", ".npz", ".safetensors"])
def test_a_file_that_only_tells_itself_gets_a_record_beside_it(tmp_path, suffix):
    path = tmp_path / f"new{suffix}"
    BETTER.save(path)
    measured = declare_compatible(path, nb.evaluate(GALLERY, BETTER))
    assert read_space(path).compatible_with == (measured,)
    assert nb.load_vectors(path).space.compatible_with == (measured,)


def test_the_record_itself_can_be_named(file):
    record = path_beside(file)
    assert record_of(record) == record_of(file) == record
    measured = declare_compatible(record, nb.evaluate(GALLERY, BETTER))
    assert json.loads(record.read_text())["compatible_with"][0]["value"] == measured.value


def test_a_declared_head_still_works_and_what_it_maps_carries_it(tmp_path):
    turn = torch.linalg.qr(torch.randn(8, 8, generator=torch.Generator().manual_seed(0))).Q
    turned = vectors(6, 0.3, None).vectors @ turn
    new = nb.Vectors(np.arange(240), turned, LABELS, space=Space(dim=8, weights="turned"))
    old, few = vectors(8, 0.3, OLD), np.arange(240) % 2 == 0  # the other half is new to the head
    seen = [
        nb.Vectors(one.ids[few], one.vectors[few], LABELS[few], space=one.space)
        for one in (new, old)
    ]
    head = CompatibleHead().fit(*seen)
    head.save_pretrained(tmp_path / "head")
    elder = vectors(7, 1.2, replace(OLD, weights="elder"))  # not what the head was fitted on
    result = nb.evaluate(elder, head.transform(new))
    measured = declare_compatible(tmp_path / "head", result)
    again = CompatibleHead.from_pretrained(tmp_path / "head").transform(new)
    assert again.space.compatible_with == (measured,)
    assert again.space.fingerprint == head.space_.fingerprint
    assert measured.fingerprint == elder.space.fingerprint != again.space.parent


def test_a_head_is_not_declared_by_items_that_it_was_fitted_on(tmp_path):
    new = vectors(6, 0.3, Space(dim=8, weights="new"))
    head = CompatibleHead(test_share=0.0).fit(new, vectors(8, 1.2, OLD))
    head.save_pretrained(tmp_path / "head")
    result = nb.evaluate(vectors(8, 1.2, OLD), head.transform(new))
    assert any("fitted on all 240 queries" in note for note in result.notes)
    assert result.verdict == "undecided"
    before = (tmp_path / "head" / "space.json").read_bytes()
    with pytest.raises(SpaceMismatch, match="fitted on all 240"):
        declare_compatible(tmp_path / "head", result)
    assert (tmp_path / "head" / "space.json").read_bytes() == before


def test_the_metric_tells_how_deep_and_who_asks_whom():
    kinds = {"modality": ["image", "text"] * 120}
    both = [
        nb.Vectors(one.ids, one.vectors, np.arange(240) // 10, columns=kinds)
        for one in (GALLERY, BETTER)
    ]
    assert metric_of(nb.evaluate(*both)) == "mAP"
    assert metric_of(nb.evaluate(*both, protocol="gldv2")) == "mAP@100"
    assert metric_of(nb.evaluate(*both, protocol="text_to_image")) == "mAP text_to_image"
    assert metric_of(nb.evaluate(*both, modalities=("image", "text"))) == "mAP image_to_text"
