"""What belongs together, against sets that are merged one pair at a time."""

import random

import numpy as np
import pytest
import torch

from nobackfill.errors import DataError
from nobackfill.head import split
from nobackfill.head.split import class_folds, tightness_of
from nobackfill.head.supervision import (
    classes_of,
    classes_of_pairs,
    notes_on_classes,
)


@pytest.mark.parametrize(
    "values",
    [["b", "a", "b", "c"], [7, -1, 7, 9], np.array([2.5, 1.0, 2.5, 3.0]), [True, False, True, 2]],
)
def test_equal_values_are_one_class(values):
    assert classes_of(values).tolist() == [1, 0, 1, 2]


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ([1.0, float("nan"), 2.0], "1 of 3 items are missing, the first in row 1"),
        (["a", None], "1 of 2 items are missing"),
        ([[1, 2], [3, 4]], r"shape \(2, 2\)"),
    ],
)
def test_what_is_no_class_is_told(values, says):
    with pytest.raises(DataError, match=says):
        classes_of(values)


def merged_by_hand(pairs):
    groups = []
    for query, relevant in pairs.items():
        for item in relevant:
            touched = [group for group in groups if {query, item} & group]
            groups = [group for group in groups if group not in touched]
            groups.append(set().union({query, item}, *touched))
    return {frozenset(group) for group in groups}


@pytest.mark.parametrize("seed", range(5))
def test_pairs_are_merged_into_connected_parts(seed):
    draw = random.Random(seed)
    ids = np.array([f"item {i}" for i in range(60)])
    pairs = {
        str(query): [str(item) for item in draw.sample(ids.tolist(), draw.randint(0, 2))]
        for query in draw.sample(ids.tolist(), 25)
    }
    classes = classes_of_pairs(ids, pairs)
    found = {
        frozenset(ids[(classes == number).numpy()].tolist())
        for number in classes[classes >= 0].unique()
    }
    assert found == merged_by_hand(pairs)
    assert set(ids[(classes < 0).numpy()]) == set(ids) - set().union(*found)
    numbers = classes[classes >= 0].unique().tolist()
    assert numbers == list(range(len(numbers)))


def test_long_chains_and_numbers_as_ids():
    ids = np.arange(3000)
    chain = {str(i): [i + 1] for i in range(2998)}
    classes = classes_of_pairs(ids, chain)
    assert classes.tolist() == [0] * 2999 + [-1]
    backwards = classes_of_pairs(ids, {i + 1: [i] for i in reversed(range(2998))})
    assert torch.equal(backwards, classes)


def test_an_item_that_is_relevant_to_nothing_has_no_class():
    assert classes_of_pairs(np.array(["a", "b"]), {"a": []}).tolist() == [-1, -1]
    assert classes_of_pairs(np.array(["a", "b"]), {"a": ["a"]}).tolist() == [0, -1]


def test_unknown_ids_and_lists_that_are_none_are_told():
    ids = np.array(["a", "b"])
    with pytest.raises(DataError, match="2 items of the pairs .* first are 'x', 'y'"):
        classes_of_pairs(ids, {"a": ["x"], "y": ["b"]})
    with pytest.raises(DataError, match="those of 'a' are a text"):
        classes_of_pairs(ids, {"a": "b"})


def test_a_class_of_more_than_a_tenth_of_what_is_linked_gets_a_note():
    ids, twins = np.arange(200), {i: [i + 1] for i in range(0, 100, 2)}  # 100 items in no pair
    assert notes_on_classes(classes_of_pairs(ids, twins)) == ()
    hub = {**twins, 0: [1, 2, 4, 6, 8]}  # 0 to 9: a tenth
    assert notes_on_classes(classes_of_pairs(ids, hub)) == ()
    (note,) = notes_on_classes(classes_of_pairs(ids, {**hub, 10: [0, 11]}))
    assert "12 of 100 items in pairs are linked into one class" in note
    assert notes_on_classes(torch.full((5,), -1)) == ()


def hold_out(classes, share, *, seed, tightness=None):
    """Rows to fit on, and those that a single fold holds out; rows without a class are in none."""
    chosen = class_folds(classes, share, seed=seed, tightness=tightness)
    is_held_out = torch.isin(classes, chosen[0] if chosen else classes[:0])
    return ((classes >= 0) & ~is_held_out).nonzero().flatten(), is_held_out.nonzero().flatten()


def test_held_out_are_whole_classes_of_several_items():
    classes = torch.tensor([*range(20), *range(20), *range(20, 30), -1, -1])  # 20 to 29 are alone
    fitted, looked_at = hold_out(classes, 0.25, seed=0)
    assert len(classes[looked_at].unique()) == 5
    assert len(looked_at) == 10
    assert not set(classes[fitted].tolist()) & set(classes[looked_at].tolist())
    assert sorted([*fitted.tolist(), *looked_at.tolist()]) == list(range(50))  # but for -1
    again = hold_out(classes, 0.25, seed=0)
    assert torch.equal(again[0], fitted)
    assert torch.equal(again[1], looked_at)
    assert not torch.equal(hold_out(classes, 0.25, seed=1)[1], looked_at)


@pytest.mark.parametrize("share", [0.001, 0.2, 0.999])
@pytest.mark.parametrize("number", [4, 5, 30])
def test_two_classes_at_least_on_either_side(share, number):
    classes = torch.arange(3 * number) % number
    fitted, looked_at = hold_out(classes, share, seed=0)
    assert len(classes[looked_at].unique()) >= 2
    assert len(classes[fitted].unique()) >= 2


@pytest.mark.parametrize(
    "classes", [[0, 0, 1, 1, 2, 2], [0, 0, *range(1, 20)], list(range(20)), [-1] * 5]
)
def test_where_two_cannot_be_held_out_none_is(classes):
    fitted, looked_at = hold_out(torch.tensor(classes), 0.5, seed=0)
    assert len(looked_at) == 0
    assert len(fitted) == sum(one >= 0 for one in classes)


@pytest.mark.parametrize("block", [7, 1000])
@pytest.mark.parametrize("precision", [torch.float16, torch.float32, torch.float64])
def test_tightness_is_the_length_of_the_mean_direction(monkeypatch, block, precision):
    monkeypatch.setattr(split, "BLOCK", block)
    generator = torch.Generator().manual_seed(0)
    classes = torch.arange(40) % 6 - 1  # every sixth in none
    lengths = torch.arange(1, 41)[:, None]  # which do not matter
    old = (lengths * torch.randn(40, 3, generator=generator)).to(precision)
    expected = []
    for one in range(5):
        unit = [row / row.norm() for row in old[classes == one].double()]
        expected.append((sum(unit) / len(unit)).norm().item())
    assert tightness_of(old, classes).tolist() == pytest.approx(expected, abs=1e-6)


def test_the_tightest_third_is_not_held_out():
    classes = torch.tensor([*range(30), *range(30), *range(30, 40), -1])  # 30 to 39 are alone
    tightness = torch.arange(40) * 7 % 40 / 40
    loose = sorted(range(30), key=lambda one: tightness[one].item())[:20]
    held_out = set()
    for seed in range(40):
        fitted, looked_at = hold_out(classes, 0.2, seed=seed, tightness=tightness)
        assert len(classes[looked_at].unique()) == 6  # a fifth of all that have several items
        assert sorted([*fitted.tolist(), *looked_at.tolist()]) == list(range(70))
        held_out |= set(classes[looked_at].tolist())
    assert held_out == set(loose)  # each at some time


def test_however_much_is_wanted_the_tightest_third_stays():
    classes, tightness = torch.arange(60) % 30, torch.arange(30) / 30
    fitted, looked_at = hold_out(classes, 0.99, seed=0, tightness=tightness)
    assert set(classes[looked_at].tolist()) == set(range(20))
    assert set(classes[fitted].tolist()) == set(range(20, 30))


@pytest.mark.parametrize("number", [2, 3, 4, 10])
def test_few_classes_of_several_items_are_still_two(number):
    classes = torch.cat([torch.arange(number), torch.arange(number), torch.arange(number, 20)])
    looked_at = hold_out(classes, 0.2, seed=0, tightness=torch.arange(20) / 20)[1]
    assert len(classes[looked_at].unique()) == 2


def test_nothing_in_any_class_has_no_tightness():
    assert tightness_of(torch.ones(4, 2), torch.full((4,), -1)).shape == (0,)
