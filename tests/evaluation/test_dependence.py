"""Groups of queries that depend on each other."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from nobackfill.data.listing import GroundTruth
from nobackfill.evaluation.dependence import components, dependent_items, near_duplicates
from nobackfill.evaluation.search_plan import plan_upgrade
from nobackfill.vectors import Vectors


def components_by_walking(number, pairs):
    """Every item's smallest reachable item, by walks along the edges."""
    neighbours = {item: {item} for item in range(number)}
    for first, second in pairs:
        neighbours[first].add(second)
        neighbours[second].add(first)
    smallest = []
    for item in range(number):
        reached, frontier = {item}, [item]
        while frontier:
            for other in neighbours[frontier.pop()] - reached:
                reached.add(other)
                frontier.append(other)
        smallest.append(min(reached))
    return smallest


@pytest.mark.parametrize("seed", range(12))
def test_components_are_what_walks_reach(seed):
    random = np.random.default_rng(seed)
    number = int(random.integers(2, 60))
    left, right = random.integers(number, size=(2, int(random.integers(0, 70))))
    half = len(left) // 2
    edges = [(left[:half], right[:half]), (left[half:], right[half:])]
    expected = components_by_walking(number, zip(left, right, strict=True))
    assert components(number, edges).tolist() == expected


def test_a_long_chain_is_one_component():
    order = np.random.default_rng(0).permutation(5_000)
    assert not components(5_000, [(order[:-1], order[1:])]).any()


def upgrade(old, new, *, labels=None, ground_truth=None, **columns):
    files = [
        Vectors([f"i{row}" for row in range(len(side))], side, labels, columns=columns)
        for side in (old, new)
    ]
    return plan_upgrade(files[0], files[1], files[1], ground_truth=ground_truth), (old, new)


def groups_of(plan, sides, sessions=None):
    groups, gallery, joined = dependent_items(plan, lambda: sides, sessions)
    _, numbers = np.unique(np.concatenate([groups, gallery]), return_inverse=True)
    return numbers[: len(groups)].tolist(), numbers[len(groups) :].tolist(), joined


def random_rows(rows, seed, dim=16):
    return torch.randn(rows, dim, generator=torch.Generator().manual_seed(seed))


def test_items_of_a_class_are_a_group():
    plan, sides = upgrade(random_rows(6, 0), random_rows(6, 1), labels=[0, 1, 2, 0, 1, 2])
    assert groups_of(plan, sides) == ([0, 1, 2] * 2, [0, 1, 2] * 2, 0)


def test_queries_that_share_a_relevant_item_are_a_group():
    # i0 and i1 both look for i4; i2 looks for i5, which is a query of i3
    lists = {"i0": ["i4"], "i1": ["i4"], "i2": ["i5"], "i5": ["i3"]}
    plan, sides = upgrade(random_rows(6, 0), random_rows(6, 1), ground_truth=GroundTruth(lists))
    assert groups_of(plan, sides)[0] == [0, 0, 1, 1, 0, 1]


def test_copies_under_another_label_are_a_group():
    old, new = random_rows(4, 0), random_rows(4, 1)
    plan, sides = upgrade(old.repeat(3, 1), new.repeat(3, 1), labels=list(range(12)) * 1)
    groups, _, joined = groups_of(plan, sides)
    assert groups == [0, 1, 2, 3] * 3
    assert joined == 12


def test_alike_by_one_model_alone_is_not_a_copy():
    old = random_rows(4, 0)
    plan, sides = upgrade(old.repeat(2, 1), random_rows(8, 1), labels=list(range(8)))
    assert groups_of(plan, sides)[0] == list(range(8))


def test_items_of_a_session_are_a_group():
    plan, sides = upgrade(random_rows(4, 0), random_rows(4, 1), labels=[0, 0, 1, 1])
    sessions = np.array(["a", "b", "b", "c"] * 2)
    assert groups_of(plan, sides, sessions)[0] == [0, 0, 0, 0]


@pytest.mark.parametrize("block_bytes", [1, 400, 2**20])
@pytest.mark.parametrize(("dim", "noise"), [(16, 0.05), (80, 0.068)])
def test_near_duplicates_are_found_by_comparing_all(monkeypatch, block_bytes, dim, noise):
    monkeypatch.setattr("nobackfill.evaluation.dependence.BLOCK_BYTES", block_bytes)
    old, new = (random_rows(30, seed, dim).repeat(2, 1) for seed in (0, 1))
    old, new = (side + noise * random_rows(60, seed, dim) for side, seed in ((old, 2), (new, 3)))
    groups = np.arange(60) // 2
    expected = {
        (i, j)
        for i in range(60)
        for j in range(i + 1, 60)
        if groups[i] != groups[j]
        and all(F.cosine_similarity(side[i], side[j], dim=0) >= 0.995 for side in (old, new))
    }
    found = [
        pair
        for left, right in near_duplicates((old, new), groups)
        for pair in zip(left.tolist(), right.tolist(), strict=True)
    ]
    assert {tuple(sorted(pair)) for pair in found} == expected
    assert 5 < len(expected) < 60
