"""Batches of pairs: each pair once, and no two of a group together."""

from itertools import chain

import pytest

from nobackfill.data.pair_batches import shuffled_batches

KEYS = [[f"d{number % 40}", ("q", number)] for number in range(100)]


@pytest.mark.parametrize("seed", [0, 1])
def test_every_pair_is_in_one_batch(seed):
    batches = shuffled_batches(KEYS, 16, seed=seed)
    assert sorted(chain(*batches)) == list(range(100))
    assert all(2 <= len(batch) <= 16 for batch in batches)


def test_no_batch_has_a_key_twice():
    for batch in shuffled_batches(KEYS, 16, seed=3):
        keys = [key for row in batch for key in KEYS[row]]
        assert len(set(keys)) == len(keys)


def test_batches_are_full_where_they_can_be():
    sizes = [
        len(batch) for batch in shuffled_batches([[number] for number in range(70)], 16, seed=0)
    ]
    assert sizes == [16, 16, 16, 16, 6]


def test_the_order_follows_from_the_seed_and_the_epoch():
    first = shuffled_batches(KEYS, 16, seed=1)
    assert shuffled_batches(KEYS, 16, seed=1) == first
    assert shuffled_batches(KEYS, 16, seed=2) != first
    assert shuffled_batches(KEYS, 16, seed=1, epoch=1) != first


def test_a_pair_that_is_left_alone_is_not_a_batch():
    assert shuffled_batches([["a"], ["b"], ["c"]], 2, seed=0) in (
        [[0, 1]], [[1, 0]], [[0, 2]], [[2, 0]], [[1, 2]], [[2, 1]],
    )  # fmt: skip
    assert shuffled_batches([["a"], ["a"], ["a"]], 2, seed=0) == []
