"""Heads trained from scratch, tiny: what they share, and what each is told."""

import numpy as np
import pytest
import torch

from nobackfill.errors import ConfigError, DataError
from nobackfill.methods.ndpp import NDPP
from nobackfill.methods.old_space import OldSpace
from nobackfill.vectors import Vectors
from nobackfill_bench import SUITES, Place
from nobackfill_bench.quality import frozen_features as scratch
from nobackfill_bench.quality.features import backbone_features, parts
from nobackfill_bench.quality.frozen_features import (
    DIM,
    epochs_of,
    make_method,
    numbered,
    sides_of,
    train_head,
)
from nobackfill_bench.quality.runner import one_run

ONE = "train.epochs=1"


@pytest.fixture
def run(task):
    def make(way, *changes, **more):
        done = one_run(task("cub-heads", way, *(changes or (ONE,)), **more))
        assert done.error == ""
        return done.line

    return make


def test_all_ways_of_a_seed_share_the_old_and_the_independent_head(run, tmp_path):
    assert run("old") is None
    (kept,) = (tmp_path / "work" / "cub-heads").iterdir()
    when = kept.stat().st_mtime_ns
    lines = [run(way) for way in ("independent", "janus", "ndpp:neighbors=3", "bt2")]
    for key in ("old_old", "raw_old", "raw_new", "independent"):
        assert len({line[key] for line in lines}) == 1, key
    assert len({line["new_old"] for line in lines}) == 4
    assert lines[0]["new_new"] == lines[0]["independent"]  # which is this very one
    assert kept.stat().st_mtime_ns == when
    assert [line["epochs"] for line in lines] == [1] * 4
    assert {line["device"] for line in lines} == {"cpu"}
    assert "ndpp" in lines[2]["way"]


def test_runs_are_repeatable_and_seeds_differ(run, tmp_path, data):
    first = run("janus")
    elsewhere = Place(tmp_path / "elsewhere", data, "cpu")
    again, other = run("janus", place=elsewhere), run("janus", seed=1, place=elsewhere)
    assert {key: again[key] for key in ("old_old", "new_old", "new_new")} == {
        key: first[key] for key in ("old_old", "new_old", "new_new")
    }
    assert other["old_old"] != first["old_old"]


def test_raw_features_are_searched_as_they_are(run, data):
    line = run("independent")
    old, new = backbone_features("cub200")(data, 0)
    for key, vectors in (("raw_old", old), ("raw_new", new)):
        searched = parts(vectors)[1]
        values = torch.nn.functional.normalize(searched.vectors, dim=1)
        scores = values @ values.T
        precisions = []
        for i, label in enumerate(searched.labels):
            order = [j for j in scores[i].argsort(descending=True).tolist() if j != i]
            hits = np.array([searched.labels[j] == label for j in order])
            precisions.append((hits.cumsum() / np.arange(1, len(hits) + 1))[hits].mean())
        assert line[key] == pytest.approx(np.mean(precisions))


def test_only_epochs_can_be_changed(task):
    assert epochs_of(()) == 60
    for changes in (["train.batch_size=3"], ["model.width=3"], [ONE, "train.seed=1"]):
        with pytest.raises(ConfigError, match="train.epochs=N"):
            epochs_of(changes)
    assert "ConfigError" in one_run(task("cub-heads", "ndpp", "model.width=3")).error


def test_other_epochs_have_other_heads(run, tmp_path):
    run("old")
    run("old", "train.epochs=2")
    names = sorted(path.name for path in (tmp_path / "work" / "cub-heads").iterdir())
    assert names == ["0_1_epochs.npz", "0_2_epochs.npz"]


def test_some_classes_are_known_to_the_old_head_and_have_the_first_labels():
    labels = np.repeat([f"c{i}" for i in range(10)], 3)
    classes, known = numbered(labels, seed=0)
    assert known == 3
    assert sorted(set(classes.tolist())) == list(range(10))
    for name in set(labels):
        assert len(set(classes[torch.from_numpy(labels == name)].tolist())) == 1
    assert not torch.equal(classes, numbered(labels, seed=1)[0])


def test_the_old_head_sees_no_class_that_it_does_not_know(task, monkeypatch):
    told = []

    def watch(features, classes, way, space, **more):
        told.append((sorted(set(classes.tolist())), way, more["seed"], space.given))
        return train_head(features, classes, way, space, **more)

    monkeypatch.setattr(scratch, "train_head", watch)
    assert one_run(task("cub-heads", "bct", ONE)).error == ""
    old, independent, bct = told
    assert old[:3] == ([0, 1, 2], "independent", 1000)  # 30 % of 12
    assert independent[:3] == (list(range(12)), "independent", 0)
    assert bct[:3] == (list(range(12)), "bct", 0)
    assert old[3] == independent[3] == frozenset()
    assert {"prototypes", "embeddings", "classifier", "independent"} <= bct[3]


def test_a_method_is_told_of_the_training_items_what_the_old_head_makes_of_them(
    task, monkeypatch, data, tmp_path
):
    told = []

    def watch(features, classes, way, space, **more):
        told.append((features, classes, space))
        return train_head(features, classes, way, space, **more)

    monkeypatch.setattr(scratch, "train_head", watch)
    assert one_run(task("cub-heads", "bt2", ONE)).error == ""
    features, classes, space = told[-1]
    new = backbone_features("cub200")(data, 0)[1]
    training = new.columns["split"] == "train"
    assert torch.equal(features, new.vectors[torch.from_numpy(training)])
    assert torch.equal(classes, numbered(new.labels[training], 0)[0])
    assert torch.equal(space.labels, classes)
    assert space.known_classes == 3
    with np.load(tmp_path / "work" / "cub-heads" / "0_1_epochs.npz") as kept:
        np.testing.assert_array_equal(space.embeddings.numpy(), kept["old"][training])
        np.testing.assert_array_equal(space.independent.numpy(), kept["independent"][training])
        np.testing.assert_array_equal(space.classifier.numpy(), kept["classifier"])
    for c, prototype in enumerate(space.prototypes):
        mean = torch.nn.functional.normalize(space.embeddings[classes == c], dim=1).mean(dim=0)
        torch.testing.assert_close(prototype, mean / mean.norm())


def test_a_method_has_the_options_of_its_way_and_the_dimension_of_the_head():
    space = OldSpace(prototypes=torch.randn(5, 4), embeddings=torch.randn(9, 4))
    ndpp = make_method("ndpp", ["method.neighbors=2"], space, 5, dim=4)
    assert isinstance(ndpp, NDPP)
    janus = make_method("janus", ["method.share=0.25", "method.partners=2"], space, 5, dim=7)
    assert (janus.share, janus.partners) == (0.25, 2)
    assert janus.back.weight.shape == (4, 7)
    with pytest.raises(ConfigError, match="neighbours"):
        make_method("ndpp", ["method.neighbours=2"], space, 5, dim=4)


def test_what_asks_is_mapped_and_what_is_stored_is_not():
    generator = torch.Generator().manual_seed(0)
    features, old = torch.randn(20, 6, generator=generator), torch.randn(20, 5, generator=generator)
    classes = torch.arange(20) % 4
    network, method = train_head(
        features, classes, "janus", OldSpace(embeddings=old, labels=classes), seed=0, epochs=1
    )
    items = Vectors(list(range(20)), features, classes.numpy())
    stored, asking = sides_of(network, method, items, torch.device("cpu"))
    torch.testing.assert_close(stored.vectors, network(features))
    torch.testing.assert_close(asking.vectors, method.back(network(features)))
    assert (stored.dim, asking.dim, stored.compatible_dim) == (DIM, 5, None)
    assert asking.labels.tolist() == classes.tolist()
    assert not network.training


def test_who_maps_nothing_asks_with_what_is_stored_and_longer_vectors_say_where_the_old_end():
    generator = torch.Generator().manual_seed(0)
    features, classes = torch.randn(20, 6, generator=generator), torch.arange(20) % 4
    old = torch.randn(20, DIM, generator=generator)
    space = OldSpace(
        prototypes=torch.randn(4, DIM, generator=generator),
        embeddings=old,
        independent=torch.randn(20, DIM, generator=generator),
        labels=classes,
    )
    items = Vectors(list(range(20)), features, classes.numpy())
    for way, dim in (("cross_supcon", None), ("bt2", DIM)):
        network, method = train_head(features, classes, way, space, seed=0, epochs=1)
        stored, asking = sides_of(network, method, items, torch.device("cpu"))
        assert asking is None
        assert stored.compatible_dim == dim
        assert (stored.dim > DIM) == (way == "bt2")


def test_training_learns_and_the_global_seed_is_left_alone():
    generator = torch.Generator().manual_seed(0)
    classes = torch.arange(60) % 3
    features = torch.randn(3, 6, generator=generator)[classes] + 0.1
    torch.manual_seed(7)
    before = torch.get_rng_state()
    network, method = train_head(features, classes, "independent", OldSpace(), seed=0, epochs=30)
    assert torch.equal(torch.get_rng_state(), before)
    assert (method.classifier(network(features)).argmax(dim=1) == classes).all()
    same, _ = train_head(features, classes, "independent", OldSpace(), seed=0, epochs=30)
    assert torch.equal(network(features), same(features))


def test_a_last_batch_of_one_item_is_left_out(monkeypatch):
    monkeypatch.setattr(scratch, "BATCH", 4)
    features, classes = torch.randn(9, 6), torch.arange(9) % 3
    train_head(features, classes, "independent", OldSpace(), seed=0, epochs=1)  # no error


def test_features_that_are_not_there_are_told_with_what_to_do(task, tmp_path):
    done = one_run(task("landmarks-heads", "ndpp", ONE))
    assert "No manifest.csv in" in done.error
    assert "NOBACKFILL_DATA" in done.error


@pytest.mark.parametrize("name", ["cub-heads", "cub-vectors"])
def test_without_a_folder_of_the_data_it_says_so(task, tmp_path, name):
    with pytest.raises(DataError, match="NOBACKFILL_DATA"):
        SUITES[name].run(task(name, "prototype_alignment", place=Place(tmp_path, None, "cpu")))
