"""Training classes that are held out are searched in place of the test."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from nobackfill.core.config import Choice, ImagesConfig, build_recipe
from nobackfill.data.held_out import hold_out
from nobackfill.data.registry import make_collection, resolve_collection
from nobackfill.errors import ConfigError
from nobackfill.training.pipeline import train_run
from nobackfill.training.run import Run
from nobackfill.vectors import load_vectors

TINY = {
    "train_classes": 20, "test_classes": 5, "images_per_class": 4, "side": 16, "shares": [0.3, 1.0],
}  # fmt: skip


def glyphs(**options):
    return make_collection(Choice("glyphs", TINY | options))


def test_the_last_classes_are_searched_and_trained_on_by_none():
    whole, part = glyphs(), glyphs(held_out_classes=4)
    assert (whole.class_counts, part.class_counts) == ((6, 20), (6, 16))
    searched = part.validation_rows()
    assert part.labels[searched].unique().tolist() == [16, 17, 18, 19]
    assert len(searched) == 4 * 4
    for step in (0, 1):
        assert not set(part.training_rows(step).tolist()) & set(searched.tolist())
    assert torch.equal(part.training_rows(0), whole.training_rows(0))
    assert int(part.labels[part.training_rows(1)].max()) == 15


def test_no_class_of_the_test_is_seen():
    whole, part = glyphs(), glyphs(held_out_classes=4)
    test = set(whole.validation_rows().tolist())
    seen = {*part.validation_rows().tolist(), *part.training_rows(-1).tolist()}
    assert not test & seen
    assert not part.columns["is_query"][sorted(test)].any()
    assert not part.columns["is_gallery"][sorted(test)].any()


def test_each_item_is_a_query_for_all_others():
    part = glyphs(held_out_classes=4)
    rows = part.validation_rows().numpy()
    assert part.columns["is_query"][rows].all()
    assert part.columns["is_gallery"][rows].all()
    assert part.columns["is_query"].sum() == len(rows)


def test_without_it_nothing_changes_and_no_recipe_has_it():
    assert "held_out_classes" not in resolve_collection(Choice("glyphs", TINY)).options
    resolved = resolve_collection(Choice("glyphs", TINY | {"held_out_classes": 3}))
    assert resolved.options["held_out_classes"] == 3


@pytest.mark.parametrize("classes", [14, 20, 100])
def test_classes_that_an_earlier_model_knows_cannot_be_held_out(classes):
    with pytest.raises(ConfigError, match=f"is {classes}, but .* from 1 to 13 here"):
        glyphs(held_out_classes=classes)


def test_one_class_that_only_the_last_model_knows_is_left():
    assert glyphs(held_out_classes=13).class_counts == (6, 7)


@pytest.mark.parametrize("value", [-1, 0.5, "many"])
def test_it_is_a_number_of_classes(value):
    with pytest.raises(ConfigError, match="`held_out_classes` in .data. must be a number"):
        resolve_collection(Choice("glyphs", TINY | {"held_out_classes": value}))


def test_a_collection_without_training_classes_has_none_to_hold_out(tmp_path):
    whole = glyphs()
    split = np.full(len(whole.ids), "validation")
    bare = replace(whole, columns={**whole.columns, "split": split}, class_counts=())
    with pytest.raises(ConfigError, match="requires training classes that only the last model"):
        hold_out(bare, 2)


def test_another_preprocessing_keeps_them_out():
    whole = glyphs()
    reopened = replace(whole, reopen=lambda images: whole)
    part = hold_out(reopened, 4).seen_as(ImagesConfig(size=(64,), crop=(32, 32)))
    assert part.class_counts == (6, 16)


def test_a_run_is_evaluated_on_them(tmp_path):
    tables = {
        "data": {"name": "glyphs", "held_out_classes": 4} | TINY,
        "model": {"name": "small", "width": 4, "embedding_dim": 8},
        "train": {"epochs": 1, "batch_size": 16},
    }
    list(train_run(build_recipe(tables), tmp_path / "run", device=torch.device("cpu")))
    vectors = load_vectors(tmp_path / "run" / "validation.parquet")
    assert sorted(set(vectors.labels.tolist())) == [16, 17, 18, 19]
    assert Run.open(tmp_path / "run").recipe.data.options["held_out_classes"] == 4
