"""Whether old and new vectors are of one space: what records declare, and what they leave open."""

import numpy as np
import pytest

from nobackfill.errors import SpaceMismatch
from nobackfill.gallery.planning.shared_space import (
    decide_space,
    declares_shared_space,
    stored_notes,
    why_not_one,
)
from nobackfill.gallery.stores import open_store
from nobackfill.vectors import Vectors
from nobackfill.vectors.space import CompatibleWith, Space

DIM = 4
OLD = Space(dim=DIM, weights="old")
NEW = Space(dim=DIM, weights="new")
CHILD = Space(dim=DIM, weights="new", parent=OLD.fingerprint, method="ndpp")
MEASURED = NEW.with_measured(CompatibleWith(OLD.fingerprint, "mAP", 0.4217))


def file(space, dim=DIM, **told):
    rows = np.random.default_rng(0).normal(size=(3, dim)).astype(np.float32)
    return Vectors(range(3), rows, space=space, **told)


@pytest.mark.parametrize(
    ("old", "new", "one"),
    [
        (OLD, OLD, True),
        (OLD, Space(dim=DIM, weights="old", dtype="float16"), True),
        (OLD, CHILD, True),
        (OLD, Space(dim=DIM, parent=OLD.fingerprint), True),
        (OLD, NEW, False),
        (OLD, MEASURED, False),
        (CHILD, OLD, False),  # the old one was made for the new: another upgrade than this
        (OLD, Space(dim=DIM, weights="new", parent="0" * 16), False),
        (None, CHILD, False),
        (OLD, None, False),
        (None, None, False),
        (Space(dim=DIM), Space(dim=DIM), False),  # any vectors of as many dimensions
        (Space(dim=DIM), Space(dim=DIM, weights="new", parent=Space(dim=DIM).fingerprint), False),
        (Space(dim=DIM, preprocessing="32 px"), Space(dim=DIM, preprocessing="32 px"), True),
    ],
)
def test_one_space_is_what_is_declared_so(old, new, one):
    old, new = file(old), file(new)
    assert declares_shared_space(old, new) is one
    found, notes = decide_space(old, new, compatible=None, mapped=False)
    assert found is one
    assert len(notes) == (0 if one else 2)  # how scores are compared, and what is not known


def test_vectors_of_more_dimensions_are_not_of_the_old_space():
    longer = Space(dim=DIM + 2, weights="new", parent=OLD.fingerprint)
    new = file(longer, DIM + 2, compatible_dim=DIM)
    assert not declares_shared_space(file(OLD), new)
    assert why_not_one(file(OLD), new) == (
        "of the 6 dimensions of new vectors the first 4 were made for the old space: with these "
        "new queries searched the old gallery"
    )


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (None, CHILD, "as the old ones do not declare their model (no space.json)"),
        (OLD, None, "as the new ones do not declare their model"),
        (None, None, "as the old and the new ones do not declare their model"),
        (Space(dim=DIM), CHILD, "contains neither `weights` nor `preprocessing`, so any of 4"),
        (
            OLD,
            MEASURED,
            "were measured on the old gallery (mAP 0.4217) and may search it, but nothing",
        ),
        (OLD, Space(dim=DIM, weights="new", method="janus"), "the method janus maps its queries"),
        (OLD, Space(dim=DIM, weights="new", method="rm"), "pass them (`query_for_old`)"),
        (
            OLD,
            Space(dim=DIM, weights="new", parent="0" * 16, method="ndpp"),
            f"were made for the space {'0' * 16}, and the old ones are of {OLD.fingerprint}",
        ),
        (OLD, NEW, "nothing declares that the new vectors are of the old space: new queries"),
    ],
)
def test_what_is_known_is_said(old, new, says):
    said = why_not_one(file(old), file(new))
    assert says in said
    asks_to_be_told = "pass `compatible`" in said
    assert asks_to_be_told is ("maps its queries" not in said)


def test_a_measurement_on_another_gallery_says_nothing_of_this_one():
    elsewhere = NEW.with_measured(CompatibleWith("0" * 16, "mAP", 0.9))
    assert "measured" not in why_not_one(file(OLD), file(elsewhere))


def test_a_measured_model_is_not_called_unmapped():
    new = Space(dim=DIM, weights="new", method="janus")
    measured = new.with_measured(CompatibleWith(OLD.fingerprint, "mAP", 0.5))
    assert "may search it" in why_not_one(file(OLD), file(measured))


def test_what_the_caller_says_counts():
    assert decide_space(file(OLD), file(NEW), compatible=True, mapped=False) == (True, [])
    assert decide_space(file(OLD), file(NEW), compatible=True, mapped=True) == (True, [])
    for mapped in (True, False):
        one, notes = decide_space(file(OLD), file(CHILD), compatible=False, mapped=mapped)
        assert not one
        assert [note.split(":")[0] for note in notes] == [
            "scores on both halves are compared in deviations from those of unrelated pairs"
        ]


def test_queries_that_were_mapped_ask_the_halves_apart():
    one, notes = decide_space(file(OLD), file(CHILD), compatible=None, mapped=True)
    assert not one
    assert len(notes) == 1


def test_other_dimensions_are_refused_where_the_caller_says_one():
    with pytest.raises(SpaceMismatch, match="4 and 6 dimensions"):
        decide_space(file(OLD), file(None, 6), compatible=True, mapped=False)


def test_a_gallery_of_other_vectors_than_the_plans_is_noted(tmp_path):
    file(NEW).save(tmp_path / "declared.parquet")
    file(None).save(tmp_path / "silent.parquet")
    with open_store(f"flat://{tmp_path / 'declared.parquet'}", read_only=True) as store:
        (note,) = stored_notes(store, file(OLD))
        assert f"of the space {NEW.fingerprint}, but the old file is of {OLD.fingerprint}" in note
        assert stored_notes(store, file(NEW)) == []
        assert stored_notes(store, file(None)) == []
    with open_store(f"flat://{tmp_path / 'silent.parquet'}", read_only=True) as store:
        assert stored_notes(store, file(OLD)) == []
