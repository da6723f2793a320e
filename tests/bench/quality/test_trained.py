"""Models that are trained, tiny: an old one, new ones beside it, and sequences of them."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from nobackfill.methods import METHODS
from nobackfill.training.demo import demo_recipe
from nobackfill.training.resolve import resolve
from nobackfill.vectors import load_vectors
from nobackfill_bench import SUITES, Place, Task
from nobackfill_bench.quality.runner import one_run
from nobackfill_bench.quality.sequences import SequenceSuite, copy_folder
from nobackfill_bench.quality.trained import TrainedSuite, folder_name, own_changes, stages

TINY = (
    "data.train_classes=20", "data.test_classes=5", "data.images_per_class=6", "data.side=16",
    "model.width=4", "model.embedding_dim=8", "train.epochs=1", "train.batch_size=16",
)  # fmt: skip


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (["ndpp"], [["old"], ["ndpp"]]),
        (["bt2"], [["old"], ["independent"], ["bt2"]]),
        (["bt2", "ndpp", "independent"], [["old"], ["ndpp", "independent"], ["bt2"]]),
        (["bt2:scale=2", "ndpp"], [["old"], ["independent", "ndpp"], ["bt2:scale=2"]]),
        (["cores"], [["old", "cores_old"], ["cores"]]),
    ],
)
def test_what_others_start_from_is_trained_before_them(wanted, expected):
    assert stages(wanted) == expected


def test_all_methods_are_trained_once():
    first, second, third = stages(list(METHODS))
    assert first == ["old", "cores_old"]
    assert sorted(second + third) == sorted(METHODS)


def test_two_methods_need_more_than_the_shared_recipe():
    suite = SUITES["glyphs"]

    def recipe(name, told=None):
        changes = own_changes(name, Path("runs"), suite.embedding_dim, suite.train_classes)
        old = Path("runs/old")
        return resolve(suite.recipe(told or name, old, seed=3, data=None, changes=changes))

    assert recipe("ndpp").model.options["embedding_dim"] == 64
    bt2 = recipe("bt2")
    assert bt2.model.options["embedding_dim"] == 64 + 64  # the independent and the old dimensions
    assert (bt2.old.run, bt2.old.independent) == ("runs/old", "runs/independent")
    cores, its_old = recipe("cores"), recipe("cores_old", "old")
    assert cores.old.run == "runs/cores_old"
    assert (its_old.method.name, its_old.old.run, its_old.train.step) == ("cores", None, 0)
    for one in (cores, its_old):
        assert one.model.options["embedding_dim"] == 199  # one corner more than dimensions


def test_a_folder_is_named_by_letters_that_a_path_may_have():
    assert (
        folder_name(["ndpp:neighbors=10,accumulate=false"]) == "ndpp_neighbors=10_accumulate=false"
    )
    assert folder_name(["old.run=/a/b", "x.y=1"]) == "old.run=_a_b_x.y=1"
    assert len(folder_name(["x" * 300])) <= 255
    assert folder_name([]) == "as_it_is"


def test_other_changes_have_another_folder_however_many_there_are():
    many = [f"data.option_{number}=1" for number in range(20)]
    assert folder_name([*many, "train.epochs=1"]) != folder_name([*many, "train.epochs=2"])


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The old model and two new ones, trained in one folder."""
    work = tmp_path_factory.mktemp("work")
    suite = TrainedSuite(
        title="Tiny", text=(), recipe=SUITES["glyphs"].recipe, embedding_dim=8, train_classes=20
    )

    def run(way):
        return suite.run(Task("glyphs", way, 4, TINY, Place(work, None, "cpu")))

    return {way: run(way) for way in ("old", "independent", "janus:share=0.25")}, run, work


def run_folder(work):
    return work / "glyphs" / folder_name(TINY) / "4"


def test_the_old_model_leaves_no_line_but_its_run(made):
    lines, _, work = made
    assert lines["old"] is None
    assert (run_folder(work) / "old" / "model.safetensors").exists()
    assert not (run_folder(work) / "old" / "evaluation.json").exists()


def test_a_line_is_what_the_evaluation_says(made):
    lines, _, work = made
    line = lines["janus:share=0.25"]
    place = run_folder(work) / "janus_share=0.25"
    result = json.loads((place / "evaluation.json").read_text())
    for key in ("old_old", "new_old", "new_new"):
        assert line[key] == result[key]
        assert line["recall_at_1"][key] == result["recall_at_1"][key]
    assert line["lost"] == result["flips"][0]["negative"]
    assert line["verdict"] == result["verdict"]
    assert (line["device"], line["epochs"], line["tests"]) == ("cpu", 1, {})
    assert line["seconds"] >= 0
    assert line["old_old"] == lines["independent"]["old_old"]


def test_options_of_a_way_are_in_its_recipe_and_not_in_the_old_models(made):
    _, _, work = made
    assert "share = 0.25" in (run_folder(work) / "janus_share=0.25" / "config.toml").read_text()
    assert "share = 0.25" not in (run_folder(work) / "old" / "config.toml").read_text()


def test_the_spread_is_that_of_the_cosines_between_class_means(made):
    lines, _, work = made
    vectors = load_vectors(run_folder(work) / "independent" / "validation.parquet")
    means = []
    for label in np.unique(vectors.labels):
        rows = vectors.vectors[torch.from_numpy(vectors.labels == label)].double()
        mean = torch.nn.functional.normalize(rows, dim=1).mean(dim=0)
        means.append((mean / mean.norm()).tolist())
    number = len(means)
    cosines = [
        sum(a * b for a, b in zip(means[i], means[j], strict=True))
        for i in range(number)
        for j in range(number)
        if i != j
    ]
    assert lines["independent"]["spread"] == pytest.approx(np.std(cosines), rel=1e-4)


def test_a_model_that_is_there_is_not_trained_again(made):
    lines, run, work = made
    weights = run_folder(work) / "independent" / "model.safetensors"
    before = weights.stat().st_mtime_ns
    again = run("independent")
    assert weights.stat().st_mtime_ns == before
    assert again["seconds"] is None  # that was not measured
    assert again["new_old"] == lines["independent"]["new_old"]


def test_own_changes_come_before_those_from_outside(monkeypatch, tmp_path):
    told = []

    def recipe(name, old_run, *, seed, data, changes):
        told.append((name, old_run, seed, data, changes))
        raise RuntimeError("that is enough")

    suite = TrainedSuite(title="Tiny", text=(), recipe=recipe, embedding_dim=8, train_classes=10)
    monkeypatch.setitem(SUITES, "tiny", suite)
    place = Place(tmp_path, tmp_path / "data", "cpu")
    for way in ("bt2:scale=2", "cores_old"):
        assert "that is enough" in one_run(Task("tiny", way, 4, ("train.epochs=3",), place)).error
    folder = tmp_path / "tiny" / "train.epochs=3" / "4"
    independent = f"old.independent={folder / 'independent'}"
    changes = ["model.embedding_dim=16", independent, "method.scale=2", "train.epochs=3"]
    assert told[0] == ("bt2", folder / "old", 4, tmp_path / "data", changes)
    corners = ["model.embedding_dim=9", "model.head=no_norm"]
    changes = [*corners, "method.name=cores", "train.epochs=3"]
    assert told[1] == ("old", folder / "old", 4, tmp_path / "data", changes)


@pytest.fixture(scope="module")
def sequence(tmp_path_factory):
    """Three models of glyphs in a row by two methods, from the same first one."""

    def recipe(name, old_run, *, seed, data, step, changes):
        told = [f"train.step={step}", "data.shares=[0.3,0.6,1.0]", *changes]
        return demo_recipe(name, old_run, seed=seed, changes=told)

    work = tmp_path_factory.mktemp("sequence")
    suite = SequenceSuite(title="Tiny", text=(), recipe=recipe)

    def run(way):
        return suite.run(Task("tiny", way, 0, TINY, Place(work, None, "cpu")))

    assert suite.stages(["ndpp", "janus"]) == [["first"], ["ndpp", "janus"]]
    return (
        {way: run(way) for way in ("first", "prototype_alignment", "janus:share=0.25")},
        run,
        work,
    )


def test_a_sequence_leaves_its_matrix(sequence):
    lines, _, _ = sequence
    assert lines["first"] is None
    for way in ("prototype_alignment", "janus:share=0.25"):
        matrix = lines[way]["matrix"]
        assert [len(row) for row in matrix] == [1, 2, 3]
        entries = [entry for row in matrix for entry in row]
        assert lines[way]["am"] == pytest.approx(sum(entries) / 6)
        below = [matrix[i][j] > matrix[j][j] for i in range(3) for j in range(i)]
        assert lines[way]["ac"] == pytest.approx(sum(below) / 3)
    first = [lines[way]["matrix"][0][0] for way in ("prototype_alignment", "janus:share=0.25")]
    assert first[0] == first[1]  # all begin with the same model


def test_each_model_names_the_one_before(sequence):
    _, _, work = sequence
    place = work / "tiny" / folder_name(TINY) / "0" / "janus_share=0.25"
    recipes = [(place / str(number) / "config.toml").read_text() for number in (1, 2, 3)]
    assert 'name = "independent"' in recipes[0]
    for number, text in enumerate(recipes[1:], start=1):
        assert f'run = "{place / str(number)}"' in text
        assert "share = 0.25" in text
    assert [text.count("step = 0") for text in recipes] == [1, 0, 0]


def test_a_sequence_that_is_there_is_not_trained_again(sequence):
    lines, run, work = sequence
    place = work / "tiny" / folder_name(TINY) / "0" / "prototype_alignment"
    before = [
        (place / str(number) / "model.safetensors").stat().st_mtime_ns for number in (1, 2, 3)
    ]
    assert run("prototype_alignment")["matrix"] == lines["prototype_alignment"]["matrix"]
    after = [(place / str(number) / "model.safetensors").stat().st_mtime_ns for number in (1, 2, 3)]
    assert after == before


def test_a_copy_that_was_killed_is_begun_anew(tmp_path):
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "a").write_text("whole")
    unfinished = tmp_path / "there" / ".1.part"
    unfinished.mkdir(parents=True)
    (unfinished / "b").write_text("half")
    copy_folder(tmp_path / "source", tmp_path / "there" / "1")
    assert [path.name for path in (tmp_path / "there").iterdir()] == ["1"]
    assert [path.name for path in (tmp_path / "there" / "1").iterdir()] == ["a"]
