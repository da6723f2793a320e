"""Heads fitted to stored vectors, tiny: what asks, what is stored, and what is told of it."""

import inspect
from dataclasses import replace

import pytest
import torch

from nobackfill.evaluation.evaluate import evaluate
from nobackfill.head import CompatibleHead
from nobackfill.head.closed_form import procrustes, ridge
from nobackfill_bench import SUITES
from nobackfill_bench.quality import heads as fitted
from nobackfill_bench.quality.features import backbone_features, parts, with_vectors
from nobackfill_bench.quality.heads import FittedSuite, usable
from nobackfill_bench.quality.runner import one_run

FEW = "train.epochs=2"


@pytest.fixture
def run(task):
    def make(way, *changes, **more):
        done = one_run(task("cub-vectors", way, *(changes or (FEW,)), **more))
        assert done.error == ""
        return done.line

    return make


@pytest.fixture
def sides(data):
    """Of the old and the new vectors what is fitted on and what is searched."""
    return [parts(one) for one in backbone_features("cub200")(data, 0)]


def test_heads_are_fitted_by_every_method_that_they_allow():
    assert {"ridge", "procrustes", "cross_supcon", "ndpp", "independent", "janus"} <= set(usable())
    assert not {"bct", "rm", "cores", "bt2"} & set(usable())
    assert len(set(usable())) == len(usable())


@pytest.mark.parametrize(("name", "fit"), [("ridge", ridge), ("procrustes", procrustes)])
def test_a_closed_form_is_fitted_on_training_classes_and_maps_both_sides(run, sides, name, fit):
    (old_fit, old_searched), (new_fit, new_searched) = sides
    mapped = fit(new_fit.vectors, old_fit.vectors)(new_searched.vectors)
    expected = evaluate(old_searched, with_vectors(new_searched, mapped)).summary()
    line = run(name)
    assert [line[key] for key in ("old_old", "new_old", "new_new")] == pytest.approx(
        [expected[key] for key in ("old_old", "new_old", "new_new")]
    )
    assert line["epochs"] is None
    assert line["independent"] == line["raw_new"]
    assert line["old_old"] == line["raw_old"]


def test_ours_asks_with_a_head_and_stores_what_that_decides(run, sides):
    (old_fit, _), (new_fit, _) = sides
    head = CompatibleHead("cross_supcon", epochs=2, seed=0).fit(
        new_fit, old_fit, labels=old_fit.labels
    )
    ours, mapped = run("janus"), run("cross_supcon")
    assert ours["stores"] == head.stores == "as they are"  # new ones are by far the better
    assert ours["new_old"] == mapped["new_old"]  # the same head
    assert ours["new_new"] == pytest.approx(ours["raw_new"])
    assert mapped["stores"] == "mapped"
    assert mapped["new_new"] < ours["new_new"]
    assert ours["start"] in head.progress_.closed
    assert (ours["epochs"], ours["best_round"]) == (2, head.progress_.best)


def test_where_mapped_vectors_are_better_ours_stores_them(task, data):
    def swapped(folder, seed):
        old, new = backbone_features("cub200")(folder, seed)
        noise = 6 * torch.randn(new.vectors.shape, generator=torch.Generator().manual_seed(0))
        beside = torch.cat([new.vectors, noise], dim=1)
        return with_vectors(old, new.vectors), with_vectors(new, beside)

    suite = replace(SUITES["cub-vectors"], load=swapped)
    ours = suite.run(task("cub-vectors", "janus", FEW))
    others = suite.run(task("cub-vectors", "cross_supcon", FEW))
    assert ours["stores"] == "mapped"
    for key in ("new_old", "new_new"):
        assert ours[key] == others[key]
    assert ours["new_new"] > ours["raw_new"]


def test_options_of_a_way_reach_the_method(run, monkeypatch):
    made = []

    class Watched(CompatibleHead):
        __signature__ = inspect.signature(CompatibleHead)

        def __init__(self, *arguments, **settings):
            super().__init__(*arguments, **settings)
            made.append(self)

    monkeypatch.setattr(fitted, "CompatibleHead", Watched)
    run("cross_supcon:temperature=0.2,weight=0.5", seed=3)
    assert made[-1].options == {"temperature": 0.2, "weight": 0.5}
    assert (made[-1].method, made[-1].seed, made[-1].epochs) == ("cross_supcon", 3, 2)
    run("janus:temperature=0.3")
    assert (made[-1].method, made[-1].options) == ("cross_supcon", {"temperature": 0.3})


@pytest.mark.parametrize(
    "way", ["ndpp:neighbors=5", "cross_supcon:partners=1", "ndpp:accumulate=false"]
)
def test_options_may_be_whole_numbers_or_words(run, way):
    assert run(way)["way"] == way


def test_without_changes_a_head_has_its_own_epochs(task, monkeypatch):
    told = []

    class Watched(CompatibleHead):
        def fit(self, *arguments, **settings):
            told.append((self.epochs, sorted(settings)))
            self.epochs = min(self.epochs, 1)
            return super().fit(*arguments, **settings)

    monkeypatch.setattr(fitted, "CompatibleHead", Watched)
    SUITES["cub-vectors"].run(task("cub-vectors", "ndpp", FEW))
    replace(SUITES["cub-vectors"], supervision="groups").run(task("cub-vectors", "ndpp"))
    assert told == [(2, ["labels"]), (CompatibleHead().epochs, ["groups"])]


def test_a_trained_old_model_is_made_once_before_all_ways(task, monkeypatch, tmp_path):
    monkeypatch.setattr("nobackfill_bench.quality.frozen_features.EPOCHS", 1)
    suite = replace(SUITES["cub-vectors"], trained=True)
    assert suite.stages(["ridge", "janus"]) == [["old"], ["ridge", "janus"]]
    assert FittedSuite(title="", text=(), load=backbone_features("cub200")).stages(["ridge"]) == [
        ["ridge"]
    ]
    assert suite.run(task("cub-vectors", "old")) is None
    (kept,) = (tmp_path / "work" / "cub-vectors").iterdir()
    line = suite.run(task("cub-vectors", "ridge"))
    assert line["old_old"] != line["raw_old"]
    assert line["independent"] != line["raw_new"]
    assert kept.name == "0_1_epochs.npz"


def test_searched_classes_are_never_fitted_on(run, sides, monkeypatch):
    seen = []

    class Watched(CompatibleHead):
        def fit(self, new, old, **told):
            seen.append((set(new.ids), set(old.ids)))
            return super().fit(new, old, **told)

    monkeypatch.setattr(fitted, "CompatibleHead", Watched)
    run("ndpp")
    (old_fit, old_searched), _ = sides
    assert seen == [(set(old_fit.ids), set(old_fit.ids))]
    assert not set(old_fit.ids) & set(old_searched.ids)
