"""What belongs together, against sets that are merged one pair at a time."""

import random

import numpy as np
import pytest
import torch

from nobackfill.errors import DataError
from nobackfill.head.supervision import classes_of, classes_of_pairs, hold_out


@pytest.mark.parametrize(
    "values",
    [["b", "a", "b", "c"], [7, -1, 7, 9], np.array([2.5, 1.0, 2.5, 3.0]), [True, False, True, 2]],
)
def test_equal_values_are_one_class(values):
    assert classes_of(values).tolist() == [1, 0, 1, 2]


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ([1.0, float("nan"), 2.0], "1 of 3 are missing, the first being that of row 1"),
        (["a", None], "1 of 2 are missing"),
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
    with pytest.raises(DataError, match="2 have none, the first being 'x', 'y'"):
        classes_of_pairs(ids, {"a": ["x"], "y": ["b"]})
    with pytest.raises(DataError, match="that of 'a' is a text"):
        classes_of_pairs(ids, {"a": "b"})


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
