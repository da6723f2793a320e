import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import nobackfill as nb
from nobackfill.core.config import Choice, OldConfig, Recipe, TrainConfig
from nobackfill.data.registry import make_collection
from nobackfill.training.embed import embed_collection
from nobackfill.training.jobs import plan_jobs
from nobackfill.training.pipeline import train_run
from nobackfill.training.run import Run
from nobackfill.training.sequence import (
    SequenceSummary,
    compatibility_matrix,
    summarize_sequence,
)

CPU = torch.device("cpu")
GLYPHS = {"train_classes": 10, "test_classes": 5, "images_per_class": 6, "side": 16}
DATA = Choice("glyphs", {**GLYPHS, "shares": [0.3, 0.6, 1.0]})
MORE = Choice("glyphs", {**GLYPHS, "seed": 5})


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("runs")


def trained(place, name, method, step, *, old=None, dim=8, tests=None, **parts):
    """A finished run; one of this name is trained once."""
    recipe = Recipe(
        data=DATA,
        tests=tests or {},
        model=Choice("small", {"width": 4, "embedding_dim": dim}),
        method=Choice(method),
        old=OldConfig(run=None if old is None else str(place / old), **parts),
        train=TrainConfig(step=step, epochs=2, batch_size=8, learning_rate=0.05, seed=step),
    )
    list(train_run(recipe, place / name, device=CPU, resume=True))
    return Run.open(place / name)


def first(place):
    return trained(place, "first", "independent", 0)


def mean_average_precision(query, gallery):
    """Of two sets of vectors, as a gallery file's columns say; no item finds itself."""
    asks, stored = gallery.columns["is_query"], gallery.columns["is_gallery"]
    place = {item: row for row, item in enumerate(gallery.ids[stored].tolist())}
    assert query.ids.tolist() == gallery.ids.tolist()
    itself = [[place[item]] if item in place else [] for item in gallery.ids[asks].tolist()]
    labels = torch.tensor(gallery.labels.tolist())
    return nb.retrieval(
        query.vectors[asks][:, : gallery.dim],
        gallery.vectors[stored],
        labels[asks],
        labels[stored],
        ignored=itself,
    ).mean_average_precision


def stored(run, stem="validation"):
    return nb.load_vectors(run.folder / f"{stem}.parquet")


@pytest.fixture(scope="module")
def three(place):
    tests = {"more": MORE}
    return [
        trained(place, "1", "independent", 0, tests=tests),
        trained(place, "2", "bct", 1, old="1", tests=tests),
        trained(place, "3", "ndpp", 2, old="2", tests=tests),
    ]


def test_the_matrix_is_that_of_the_saved_vectors(three):
    matrix = compatibility_matrix(three, make_collection(DATA), device=CPU)
    assert [len(row) for row in matrix] == [1, 2, 3]
    for i, row in enumerate(matrix):
        for j, value in enumerate(row):
            assert value == pytest.approx(
                mean_average_precision(stored(three[i]), stored(three[j]))
            )
    assert len({round(value, 6) for row in matrix for value in row}) == 6  # none is another's


def test_neighbours_in_the_matrix_are_what_each_run_was_told(three):
    matrix = compatibility_matrix(three, make_collection(DATA), device=CPU)
    for i in (1, 2):
        result = json.loads((three[i].folder / "evaluation.json").read_text())
        assert matrix[i][i - 1] == pytest.approx(result["new_old"])
        assert matrix[i][i] == pytest.approx(result["new_new"])
        assert matrix[i - 1][i - 1] == pytest.approx(result["old_old"])


@pytest.mark.parametrize("protocol", ["plain", "leave-one-out", "roxford_rparis"])
def test_each_collection_is_searched_by_its_protocol(three, protocol):
    collection = replace(make_collection(DATA), protocol=protocol)
    matrix = compatibility_matrix(three, collection, device=CPU)
    for i, new in enumerate(three):
        for j, old in enumerate(three[: i + 1]):
            result = nb.evaluate(stored(old), stored(new), protocol=protocol).summary()
            assert matrix[i][j] == pytest.approx(result["new_old"])
            assert matrix[i][i] == pytest.approx(result["new_new"])


def test_several_tests_are_averaged_and_each_stands_by_itself(three, tmp_path):
    summary = summarize_sequence(tmp_path, three, device=CPU)
    assert list(summary.tests) == ["data", "more"]
    for name, stem in (("data", "validation"), ("more", "test_more")):
        by_hand = [
            [mean_average_precision(stored(new, stem), stored(old, stem)) for old in three[: i + 1]]
            for i, new in enumerate(three)
        ]
        for row, expected in zip(summary.tests[name], by_hand, strict=True):
            assert row == pytest.approx(expected)
    for i in range(3):
        for j in range(i + 1):
            both = [summary.tests[name][i][j] for name in ("data", "more")]
            assert both[0] != both[1]
            assert summary.matrix[i][j] == pytest.approx(sum(both) / 2)


def test_ac_and_am_are_counted_in_the_matrix(three, tmp_path):
    summary = summarize_sequence(tmp_path, three, device=CPU)
    m = summary.matrix
    better = [m[1][0] > m[0][0], m[2][0] > m[0][0], m[2][1] > m[1][1]]
    assert summary.ac == pytest.approx(sum(better) / 3)
    assert summary.am == pytest.approx(sum(sum(row) for row in m) / 6)


def test_a_file_says_all_of_it(three, tmp_path):
    summary = summarize_sequence(tmp_path, three, device=CPU)
    assert json.loads((tmp_path / "sequence.json").read_text()) == summary.to_json()
    assert SequenceSummary.from_json(tmp_path / "sequence.json") == summary
    models = summary.models
    assert [model.run for model in models] == ["1", "2", "3"]
    assert [model.method for model in models] == ["independent", "bct", "ndpp"]
    assert [model.step for model in models] == [0, 1, 2]
    fingerprints = [stored(run).space.fingerprint for run in three]
    assert [model.parent for model in models] == [None, *fingerprints[:2]]


def test_one_test_needs_no_mean(place, tmp_path):
    alone = first(place)
    runs = [alone, trained(place, "second", "ndpp", 1, old="first")]
    summary = summarize_sequence(tmp_path, runs, device=CPU)
    assert summary.tests == {}
    assert summary.matrix == compatibility_matrix(runs, make_collection(DATA), device=CPU)


def test_mapped_queries_ask_the_gallery_before_and_plain_ones_their_own(place):
    old = first(place)
    new = trained(place, "rm", "rm", 1, old="first", dim=12)
    matrix = compatibility_matrix([old, new], make_collection(DATA), device=CPU)
    query = stored(new, "validation_query")
    assert (query.dim, stored(new).dim) == (8, 12)
    assert matrix[1][0] == pytest.approx(mean_average_precision(query, stored(old)))
    assert matrix[1][1] == pytest.approx(mean_average_precision(stored(new), stored(new)))
    assert matrix[1][0] != pytest.approx(mean_average_precision(stored(new), stored(old)))


def test_vectors_that_grow_ask_each_gallery_with_their_first_dimensions(place):
    runs = [
        first(place),
        trained(place, "longer", "bct", 1, old="first", dim=12),
        trained(place, "longest", "lwf", 2, old="longer", dim=16),
    ]
    assert [stored(run).dim for run in runs] == [8, 12, 16]
    matrix = compatibility_matrix(runs, make_collection(DATA), device=CPU)
    for i, row in enumerate(matrix):
        for j, value in enumerate(row):
            assert value == pytest.approx(mean_average_precision(stored(runs[i]), stored(runs[j])))


def test_bt2_grows_with_every_model(place):
    runs = [first(place)]
    for name, step, dim in (("bt2", 1, 16), ("bt2_again", 2, 20)):
        alone = trained(place, f"{name}_alone", "independent", step, dim=dim)
        old = runs[-1].folder.name
        independent = str(alone.folder)
        runs.append(trained(place, name, "bt2", step, old=old, dim=dim, independent=independent))
    assert [stored(run).dim for run in runs] == [8, 16 + 32, 20 + 32]
    matrix = compatibility_matrix(runs, make_collection(DATA), device=CPU)
    for i, row in enumerate(matrix):
        for j, value in enumerate(row):
            assert value == pytest.approx(mean_average_precision(stored(runs[i]), stored(runs[j])))


@pytest.mark.parametrize("dim", [6, 8])
def test_queries_are_mapped_once_for_every_model_in_between(place, dim):
    """Model 3 maps into what model 2 stores; model 2's map goes from there to model 1."""
    old = first(place)
    two = trained(place, f"rm2_{dim}", "rm", 1, old="first", dim=dim)
    three = trained(place, f"rm3_{dim}", "rm", 2, old=f"rm2_{dim}", dim=dim)
    query = embed_collection(three.folder, two.folder, split="validation", side="query", device=CPU)
    with torch.no_grad():
        twice = two.sides().query.eval()(query.vectors)
    mapped = nb.Vectors(query.ids, twice, query.labels, columns=query.columns)
    matrix = compatibility_matrix([old, two, three], make_collection(DATA), device=CPU)
    assert matrix[2][0] == pytest.approx(mean_average_precision(mapped, stored(old)))


SEQUENCE = """
[data]
name = "glyphs"
train_classes = 10
test_classes = 5
images_per_class = 6
side = 16
shares = [0.3, 0.6, 1.0]
[model]
name = "small"
width = 4
embedding_dim = 8
[method]
name = "ndpp"
[train]
epochs = 2
batch_size = 8
[[sequence]]
train.step = 0
method.name = "independent"
[[sequence]]
train.step = 1
[[sequence]]
train.step = 2
"""


def train_all(recipe, folder, *, resume=False, epochs=100):
    """Trains a sequence, and stops after so many epochs, as a kill does."""
    jobs = plan_jobs(recipe, folder)
    for job in jobs:
        for _ in (running := train_run(job.recipe, job.folder, device=CPU, resume=resume)):
            epochs -= 1
            if epochs == 0:
                running.close()
                return []
    return [Run.open(job.folder) for job in jobs]


@pytest.mark.parametrize("stopped_after", [1, 3])
def test_a_stopped_sequence_goes_on_as_if_it_had_not_been(tmp_path, monkeypatch, stopped_after):
    (tmp_path / "recipe.toml").write_text(SEQUENCE)
    summaries = []
    for name in ("whole", "stopped"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        folder, resume = Path("runs"), name == "stopped"
        if resume:
            assert train_all(tmp_path / "recipe.toml", folder, epochs=stopped_after) == []
            assert not (folder / "3").exists()
        runs = train_all(tmp_path / "recipe.toml", folder, resume=resume)
        summaries.append(summarize_sequence(folder, runs, device=CPU))
    assert summaries[0] == summaries[1]
    for number in ("1", "2", "3"):
        one, other = (
            (tmp_path / name / "runs" / number / "model.safetensors").read_bytes()
            for name in ("whole", "stopped")
        )
        assert one == other
