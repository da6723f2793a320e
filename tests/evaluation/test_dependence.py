"""Groups of queries that depend on each other."""

import itertools

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from nobackfill.data.listing import GroundTruth
from nobackfill.evaluation.dependence import dependent_items
from nobackfill.evaluation.near_duplicates import (
    SHARE,
    components,
    have_copies,
    near_duplicates,
)
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


def joined_by_comparing_all(sides, groups):
    """Pairs of groups to join, found by the definition, one pair of items at a time."""
    cosines = [F.cosine_similarity(side[:, None], side[None], dim=2) for side in sides]
    number = len(groups)
    reach = [
        [
            max([0, *(c[i, k] for k in range(number) if k != i and groups[k] == groups[i])])
            for i in range(number)
        ]
        for c in cosines
    ]
    joined, copied = set(), {}
    for i, j in itertools.permutations(range(number), 2):
        if groups[i] == groups[j]:
            continue
        if all(c[i, j] >= 0.995 for c in cosines):
            joined.add((groups[i], groups[j]))
        is_copy = all(
            1 - c[i, j] <= max(0.005, SHARE * min(1 - own[i], 1 - own[j]))
            for c, own in zip(cosines, reach, strict=True)
        )
        if is_copy:
            copied.setdefault((groups[i], groups[j]), set()).add(i)
    for pair, items in copied.items():
        if 2 * len(items) > sum(group == pair[0] for group in groups):
            joined.add(pair)
    return joined


@pytest.mark.parametrize("block_bytes", [1, 400, 2**20])
@pytest.mark.parametrize(("dim", "noise"), [(16, 0.05), (16, 0.15), (80, 0.068), (80, 0.25)])
def test_near_duplicates_are_found_by_comparing_all(monkeypatch, block_bytes, dim, noise):
    monkeypatch.setattr("nobackfill.evaluation.near_duplicates.BLOCK_BYTES", block_bytes)
    monkeypatch.setattr("nobackfill.evaluation.near_duplicates.OWN_ROWS", 7)
    old, new = (random_rows(40, seed, dim).repeat(2, 1) for seed in (0, 1))
    old, new = (side + noise * random_rows(80, seed, dim) for side, seed in ((old, 2), (new, 3)))
    groups = np.random.default_rng(0).permutation(np.arange(80) // 2)
    groups[:40] = np.arange(40) // 4
    groups[40:] = 100 + np.arange(40) // 4
    names = np.unique(groups)
    left, right = near_duplicates((old, new), groups)
    place = {name: position for position, name in enumerate(names.tolist())}
    expected = joined_by_comparing_all((old, new), groups.tolist())
    edges = [(place[one], place[other]) for one, other in sorted(expected)]
    roots = components_by_walking(len(names), edges)
    assert left.tolist() == names.tolist()
    assert right.tolist() == names[roots].tolist()
    assert 5 < len(set(roots)) < len(names)


def noisy_copies(likeness, labels, dim=16):
    """Two models' vectors of 32 items, and again of their copies, of that cosine with noise."""
    noise = (1 / likeness**2 - 1) ** 0.5
    sides = []
    for seed in (0, 1):
        mean = random_rows(100, seed, dim)[labels[:32]]
        rows = F.normalize(mean + 1.5 * random_rows(32, seed + 2, dim), dim=1).repeat(2, 1)
        sides.append(rows + noise * random_rows(64, seed + 4, dim) / dim**0.5)
    return sides


def test_classes_that_were_copied_with_noise_are_a_group():
    labels = np.arange(64) // 4
    sides = noisy_copies(0.985, labels)
    cosines = F.cosine_similarity(*(sides[0][rows] for rows in (slice(32), slice(32, 64))))
    assert cosines.max() < 0.995
    names, joined = near_duplicates(sides, labels)
    assert joined.tolist() == [*range(8), *range(8)]
    assert names.tolist() == list(range(16))


def test_a_few_copies_with_noise_join_no_classes():
    labels = np.arange(64) // 4
    sides = noisy_copies(0.985, labels)
    for side in sides:  # half of the items of each copied class are others
        side[32::4], side[33::4] = random_rows(8, 9), random_rows(8, 10)
    assert near_duplicates(sides, labels)[1].tolist() == list(range(16))


def test_look_alike_classes_are_not_copies():
    """The items of two classes are as close to those of the other as to their own."""
    labels = np.arange(400) // 4
    mean = random_rows(50, 0).repeat_interleave(2, 0)[labels]
    item = random_rows(400, 1)
    sides = [mean + item, mean + 0.7 * item]
    assert near_duplicates(sides, labels)[1].tolist() == list(range(100))


def test_one_query_of_a_class_has_no_copies_with_noise():
    """How far the items of its class are from each other is not known."""
    old, new = noisy_copies(0.985, np.arange(64))
    assert near_duplicates((old, new), np.arange(64))[1].tolist() == list(range(64))


def test_queries_of_copied_classes_have_copies():
    labels = np.arange(64) // 4
    sides = noisy_copies(0.985, labels)
    queries, others = ([side[rows] for side in sides] for rows in (slice(40), slice(40, 64)))
    marks = have_copies(queries, labels[:40], others, labels[40:])
    assert marks.tolist() == [False] * 8 + [True] * 24 + [False] * 8
    alone = have_copies(queries, labels[:40], others, np.arange(24))
    assert not alone.any()


def test_constant_vectors_are_one_group():
    groups = np.arange(300) // 3
    names, joined = near_duplicates((torch.ones(300, 4), torch.ones(300, 4)), groups)
    assert len(np.unique(joined)) < 8
    assert len(names) == 100
