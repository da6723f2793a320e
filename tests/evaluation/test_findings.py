"""All that a report says of one upgrade: by hand where that can be, else against its parts."""

import json
import math

import numpy as np
import pytest
import torch

import nobackfill as nb
from nobackfill.data.listing import GroundTruth
from nobackfill.errors import ConfigError
from nobackfill.evaluation.confusion import confused_classes
from nobackfill.evaluation.findings import findings_of
from nobackfill.evaluation.query_changes import compare
from nobackfill.evaluation.thresholds import similarities

CLASSES, PER_CLASS, DIM = 12, 6, 6
COUNT = CLASSES * PER_CLASS
LABELS = np.array([f"class {i % CLASSES}" for i in range(COUNT)])
ASKS = np.arange(COUNT) < 2 * CLASSES
ROLES = {"is_query": ASKS, "is_gallery": ~ASKS}
MORE = {
    "light": np.where(np.arange(COUNT) % 3 == 0, "night", "day"),
    "camera": np.arange(COUNT) % 2,
    "is_sharp": np.arange(COUNT) % 4 > 0,
    "shop": np.full(COUNT, "only one"),
    "price": np.linspace(1, 2, COUNT),
    "text": np.array([f"text {i % 3}" for i in range(COUNT)]),
    "path": np.array([f"{i % 3}.jpg" for i in range(COUNT)]),
    "split": np.full(COUNT, "validation"),
}


@pytest.fixture(autouse=True)
def by_pca(monkeypatch):
    """Which of the two ways a map is laid out by is not asked here, and this is the quicker one."""
    monkeypatch.setattr("nobackfill.evaluation.tsne._open_tsne", lambda: None)


def vectors(seed, noise, *, space=0, labels=LABELS, dim=DIM, **columns):
    names, number = np.unique(labels, return_inverse=True)
    centre = torch.randn(len(names), dim, generator=torch.Generator().manual_seed(space))
    generator = torch.Generator().manual_seed(seed)
    values = centre[number] + noise * torch.randn(len(labels), dim, generator=generator)
    ids = [f"item {i}" for i in range(len(labels))]
    return nb.Vectors(ids, values, labels, columns={**ROLES, **columns} if columns else ROLES)


OLD, NEW, FREE = vectors(1, 0.9, **MORE), vectors(2, 0.8, **MORE), vectors(3, 0.4, space=9)


def strict(value):
    return json.dumps(value, allow_nan=False)


# Three queries and six stored items in the plane, at these angles


def around(angles):
    ids = ["a0", "a1", "b0", "b1", "c0", "c1", "ask a", "ask b", "ask c"]
    angle = torch.tensor([0, 5, 90, 95, 180, 185, *angles]).double().deg2rad()
    values = torch.stack([angle.cos(), angle.sin()], dim=1)
    asks = np.array([name.startswith("ask") for name in ids])
    columns = {"is_query": asks, "is_gallery": ~asks}
    return nb.Vectors(ids, values, [name.removeprefix("ask ")[0] for name in ids], columns=columns)


def test_who_loses_and_who_wins_by_hand():
    found = findings_of(nb.evaluate(around([10, 80, 120]), around([60, 80, 170])))
    (lost,), (won,) = found.lost, found.won
    assert (lost.query, lost.rank_before, lost.rank_after) == ("ask a", 1, 3)
    assert lost.top_before == ["a1", "a0", "b0", "b1", "c0"]
    assert lost.right_before == [True, True, False, False, False]
    assert lost.top_after == ["b0", "b1", "a1", "a0", "c0"]
    assert lost.right_after == [False, False, True, True, False]
    assert (won.query, won.rank_before, won.rank_after) == ("ask c", 3, 1)
    assert won.right_before == [False, False, True, True, False]
    assert won.right_after == [True, True, False, False, False]
    assert [one.value for one in found.slices["label"]] == ["a", "b", "c"]  # the worst first
    assert [one.queries for one in found.slices["label"]] == [1, 1, 1]  # however few


def test_of_many_that_change_the_worst_are_listed(monkeypatch):
    evaluation = nb.evaluate(vectors(1, 0.9), vectors(5, 2.0))
    whole = findings_of(evaluation)
    monkeypatch.setattr("nobackfill.evaluation.findings.LISTED", 2)
    some = findings_of(evaluation)
    assert len(whole.lost) > 2
    assert some.lost == whole.lost[:2]
    assert some.won == whole.won[:2]


def test_it_holds_what_its_parts_find():
    evaluation = nb.evaluate(OLD, NEW, independent=FREE)
    found, comparison = findings_of(evaluation), compare(evaluation)
    assert found.evaluation is evaluation
    assert found.lost == comparison.flipped(1)
    assert found.won == comparison.won(1)
    assert found.lost
    assert found.won
    assert found.confused == confused_classes(evaluation)
    expected = [one.summary() for one in similarities(comparison)]
    assert [one.summary() for one in found.similarities] == expected
    assert repr(found.slices["light"]) == repr(
        comparison.slices("light", smallest=found.smallest)
    )  # with NaN in it, which equals nothing
    assert repr(found.slices["label"]) == repr(comparison.slices("label"))


# Slices


def test_slices_are_classes_and_columns_that_group_queries():
    found = findings_of(nb.evaluate(OLD, NEW))
    assert list(found.slices) == ["label", "light", "camera", "is_sharp"]


def test_a_column_with_too_many_values_is_a_name_and_no_slice(monkeypatch):
    names = np.array([f"name {i}" for i in range(COUNT)])
    few = np.arange(COUNT) % 5
    evaluation = nb.evaluate(vectors(1, 0.9, name=names, few=few), vectors(2, 0.8))
    monkeypatch.setattr("nobackfill.evaluation.findings.VALUES", 5)
    assert list(findings_of(evaluation).slices) == ["label", "few"]
    monkeypatch.setattr("nobackfill.evaluation.findings.VALUES", 4)
    assert list(findings_of(evaluation).slices) == ["label"]  # classes are always told


def test_more_than_five_hundred_values_are_too_many():
    labels = np.arange(1010) % 5
    asks = np.arange(1010) < 505
    columns = {"is_query": asks, "is_gallery": ~asks, "name": np.arange(1010) % 501}
    columns["group"] = np.arange(1010) % 500
    old, new = (vectors(seed, 0.9, labels=labels, **columns) for seed in (1, 2))
    assert list(findings_of(nb.evaluate(old, new)).slices) == ["label", "group"]


def test_columns_may_be_chosen():
    evaluation = nb.evaluate(OLD, NEW)
    assert list(findings_of(evaluation, columns=["shop", "text"]).slices) == ["shop", "text"]
    assert findings_of(evaluation, columns=[]).slices == {}
    with pytest.raises(ConfigError, match="no column `ligth`.*Did you mean `light`"):
        findings_of(evaluation, columns=["ligth"])


@pytest.mark.parametrize(("queries", "smallest"), [(3, 2), (59, 2), (60, 3), (620, 30)])
def test_a_slice_has_thirty_queries_or_fewer_where_there_are_few(queries, smallest):
    labels = np.arange(queries + 6) % 3
    asks = np.arange(queries + 6) >= 6
    group = np.full(queries + 6, "of many", dtype="U8")
    group[6 : 6 + smallest] = "enough"
    group[6 + smallest : 5 + 2 * smallest] = "too few"
    columns = {"is_query": asks, "is_gallery": ~asks, "group": group}
    old, new = (vectors(seed, 0.9, labels=labels, **columns) for seed in (1, 2))
    found = findings_of(nb.evaluate(old, new))
    assert found.smallest == smallest
    values = {one.value for one in found.slices["group"]}
    assert "enough" in values
    assert "too few" not in values


# How the spaces look


def means_by_hand(file, rows):
    means = {}
    for name in sorted(set(LABELS)):
        items = [file.vectors[i].double() for i in rows if LABELS[i] == name]
        total = sum(item / item.norm() for item in items)
        means[name] = total / total.norm()
    return means


def spread_by_hand(means, *, center):
    rows = list(means.values())
    if center:
        rows = [row - sum(rows) / len(rows) for row in rows]
    cosines = [
        float(one @ other / one.norm() / other.norm())
        for place, one in enumerate(rows)
        for other in rows[:place]
    ]
    return np.std(cosines)


def uniformity_by_hand(file, rows):
    unit = [file.vectors[i].double() / file.vectors[i].double().norm() for i in rows]
    near = [
        math.exp(-2 * float((one - other).square().sum()))
        for place, one in enumerate(unit)
        for other in unit[:place]
    ]
    return math.log(sum(near) / len(near))


def test_each_space_is_described_by_its_own_gallery():
    found = findings_of(nb.evaluate(OLD, NEW, independent=FREE))
    assert list(found.spaces) == ["old", "new", "independent"]
    rows = np.flatnonzero(~ASKS)
    for (name, space), file in zip(found.spaces.items(), (OLD, NEW, FREE), strict=True):
        means = means_by_hand(file, rows)
        expected = (
            spread_by_hand(means, center=False),
            spread_by_hand(means, center=True),
            uniformity_by_hand(file, rows),
        )
        told = (space.spread, space.spread_centred, space.uniformity)
        assert told == pytest.approx(expected, abs=1e-5), name


def test_the_map_shows_the_classes_most_alike_and_who_asks_for_them():
    found = findings_of(nb.evaluate(OLD, NEW))
    alike = [name for pair in found.confused for name in (pair.one, pair.other)]
    assert found.map.kind == "pca"
    assert found.map.names == list(dict.fromkeys(alike))[:8]
    for part, is_in in (("gallery", ~ASKS), ("old", ASKS), ("new", ASKS)):
        numbers = found.map.classes[part].tolist()
        expected = {name: LABELS[is_in].tolist().count(name) for name in found.map.names}
        assert {
            name: numbers.count(place) for place, name in enumerate(found.map.names)
        } == expected
        assert found.map.points[part].shape == (len(numbers), 2)
    assert found.map.classes["means"].tolist() == list(range(8))
    assert found.map.points["means"].shape == (8, 2)


def test_points_of_the_map_are_those_of_their_class():
    """Old queries and stored items lie exactly on one point per class; new ones on another."""
    axes = torch.eye(CLASSES)
    number = np.unique(LABELS, return_inverse=True)[1]
    old = nb.Vectors(OLD.ids, axes[number], LABELS, columns=ROLES)
    new = nb.Vectors(OLD.ids, axes[(number + 1) % CLASSES] + axes[number], LABELS, columns=ROLES)
    drawn = findings_of(nb.evaluate(old, new)).map
    for part in ("gallery", "old"):
        for place, number in zip(drawn.points[part], drawn.classes[part], strict=True):
            np.testing.assert_allclose(place, drawn.points["means"][number], atol=1e-5)
    moved = drawn.points["new"] - drawn.points["means"][drawn.classes["new"]]
    assert np.linalg.norm(moved, axis=1).max() > 0.1


def test_of_large_classes_some_items_are_drawn(monkeypatch):
    monkeypatch.setattr("nobackfill.evaluation.findings.DRAWN_ITEMS", 3)
    monkeypatch.setattr("nobackfill.evaluation.findings.DRAWN_CLASSES", 2)
    drawn = findings_of(nb.evaluate(OLD, NEW)).map
    assert len(drawn.names) == 2
    assert drawn.classes["gallery"].tolist() == [0, 0, 0, 1, 1, 1]
    assert drawn.classes["old"].tolist() == drawn.classes["new"].tolist() == [0, 0, 1, 1]


def test_labels_may_be_numbers():
    labels = np.arange(COUNT) % CLASSES + 100
    found = findings_of(nb.evaluate(vectors(1, 0.9, labels=labels), vectors(2, 0.8, labels=labels)))
    assert set(found.map.names) <= {str(label) for label in labels}
    assert {one.value for one in found.slices["label"]} == set(labels.tolist())
    strict(found.summary())


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64])
def test_vectors_of_any_precision_are_looked_into(dtype):
    old, new = (
        nb.Vectors(file.ids, file.vectors.to(dtype), file.labels, columns=file.columns)
        for file in (OLD, NEW)
    )
    strict(findings_of(nb.evaluate(old, new)).summary())


# What is not there, and that it is said


def says(found, *words):
    return [one for one in found.not_measured if all(word in one for word in words)]


def test_a_reader_is_told_what_no_evaluation_of_files_measures():
    found = findings_of(nb.evaluate(OLD, NEW, independent=FREE))
    assert len(found.not_measured) == 2
    assert says(found, "live traffic")
    assert says(found, "approximate index")


def test_without_an_independent_model_that_is_said():
    found = findings_of(nb.evaluate(OLD, NEW))
    assert says(found, "P-scores", "independent")
    assert list(found.spaces) == ["old", "new"]
    assert len(found.not_measured) == 3


def test_without_a_new_gallery_that_is_said():
    found = findings_of(nb.evaluate(OLD, NEW.select(ASKS), independent=FREE))
    assert says(found, "new/new", "no new vectors of the gallery")
    assert list(found.spaces) == ["old", "independent"]
    assert [one.pair for one in found.similarities] == ["old_old", "new_old", "independent"]
    assert found.confused[0].new_new is None
    assert found.map is not None
    strict(found.summary())


def test_without_classes_what_needs_them_is_left_out():
    truth = GroundTruth({f"item {i}": [f"item {i + 24}"] for i in range(24)})
    found = findings_of(nb.evaluate(OLD, NEW, ground_truth=truth))
    assert says(found, "cannot tell apart", "lists")
    assert (found.confused, found.spaces, found.map) == ((), {}, None)
    assert len(found.similarities) == 3  # what is listed, against what is not
    strict(found.summary())
    bare = [nb.Vectors(file.ids, file.vectors, columns=ROLES) for file in (OLD, NEW)]
    found = findings_of(nb.evaluate(*bare, ground_truth=truth))
    assert found.slices == {}
    strict(found.summary())


def test_where_nobody_is_a_stranger_there_are_no_thresholds():
    truth = GroundTruth({f"item {i}": [f"item {j}" for j in range(24, COUNT)] for i in range(24)})
    evaluation = nb.evaluate(OLD, NEW, ground_truth=truth)
    found = findings_of(evaluation)
    assert found.similarities == []
    assert says(found, "scores and thresholds", "of different classes")


@pytest.mark.parametrize("queries", [1, 2])
def test_very_few_queries_are_looked_into(queries):
    asks = np.arange(COUNT) < queries
    columns = {"is_query": asks, "is_gallery": ~asks}
    old, new = (vectors(seed, 0.9, **columns) for seed in (1, 2))
    found = findings_of(nb.evaluate(old, new))
    assert found.evaluation.verdict == "undecided"
    assert (found.map is None) == (queries == 1)  # of one class there is no pair to confuse
    strict(found.summary())


def test_a_query_that_has_nothing_to_find_disturbs_nothing():
    labels = LABELS.copy()
    labels[3] = "alone"
    found = findings_of(nb.evaluate(vectors(1, 0.9, labels=labels), vectors(2, 0.8, labels=labels)))
    assert "alone" not in {one.value for one in found.slices["label"]}
    assert "item 3" not in {one.query for one in (*found.lost, *found.won)}
    strict(found.summary())


# For programs


def test_the_summary_is_json_and_the_same_twice():
    evaluations = [nb.evaluate(OLD, NEW, independent=FREE) for _ in range(2)]
    first, second = (strict(findings_of(one).summary()) for one in evaluations)
    assert first == second


def test_the_summary_has_all_that_was_found():
    evaluation = nb.evaluate(OLD, NEW, independent=FREE)
    found = findings_of(evaluation)
    told = json.loads(strict(found.summary()))
    for key, value in json.loads(strict(evaluation.summary())).items():
        assert told[key] == value
    assert [one["query"] for one in told["lost"]] == [one.query for one in found.lost]
    assert [one["right_after"] for one in told["won"]] == [one.right_after for one in found.won]
    assert list(told["slices"]) == list(found.slices)
    for column, slices in found.slices.items():
        assert [one["difference"] for one in told["slices"][column]] == [
            one.difference.summary() for one in slices
        ]
        assert [one["lost"] for one in told["slices"][column]] == [one.lost for one in slices]
    assert told["smallest_slice"] == found.smallest == 2
    assert [one["old_cosine"] for one in told["confused_classes"]] == [
        one.old_cosine for one in found.confused
    ]
    assert list(told["similarities"]) == ["old_old", "new_old", "new_new", "independent"]
    assert told["spaces"]["new"]["uniformity"] == found.spaces["new"].uniformity
    assert told["not_measured"] == list(found.not_measured)


def test_p_scores_come_with_the_values_they_were_made_of():
    evaluation = nb.evaluate(OLD, NEW, independent=FREE)
    entered = evaluation.summary()["p_scores_of"]
    assert entered == {name: pair.mean_average_precision for name, pair in evaluation.pairs.items()}
    assert nb.evaluate(OLD, NEW).summary()["p_scores_of"] is None
    no_gain = nb.evaluate(NEW, OLD, independent=vectors(7, 9.0))
    assert no_gain.summary()["p_scores_of"] is None


@pytest.mark.parametrize("stored", [1, 4])
def test_a_gallery_of_one_class_still_makes_json(stored):
    labels = np.array(["a", "b", *"a" * stored])
    asks = np.arange(len(labels)) < 2
    columns = {"is_query": asks, "is_gallery": ~asks}
    old, new = (vectors(seed, 0.9, labels=labels, **columns) for seed in (1, 2))
    strict(findings_of(nb.evaluate(old, new)).summary())


def test_a_class_without_a_mean_direction_costs_only_the_parts_that_need_one():
    labels = np.arange(24) % 6
    rows = torch.randn(24, 4, generator=torch.Generator().manual_seed(0))
    rows[labels == 0] = torch.tensor([[1.0, 0, 0, 0], [-1.0, 0, 0, 0]]).repeat(2, 1)
    old = nb.Vectors(list(range(24)), rows, labels)
    new = nb.Vectors(list(range(24)), rows + 0.1, labels)
    found = findings_of(nb.evaluate(old, new))
    assert not found.confused
    assert not found.spaces
    assert any("no mean direction" in what for what in found.not_measured)
    assert found.slices["label"]
