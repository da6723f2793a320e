"""Which items meet in a batch: everyone once, or so many of each class."""

from collections import Counter

import pytest
import torch

from nobackfill.data.sampling import by_class, in_order, shuffled
from nobackfill.errors import DataError


def seed(number):
    return torch.Generator().manual_seed(number)


def flat(batches):
    return torch.cat(batches).tolist()


@pytest.mark.parametrize("batch_size", [2, 3, 4, 7, 100])
@pytest.mark.parametrize("num_items", [1, 2, 3, 7, 8, 9, 29])
def test_every_item_comes_once_in_batches_of_equal_size(num_items, batch_size):
    for batches in (
        in_order(num_items, batch_size),
        shuffled(num_items, batch_size, seed(0)),
    ):
        assert sorted(flat(batches)) == list(range(num_items))
        sizes = [len(batch) for batch in batches]
        assert max(sizes) <= batch_size
        assert max(sizes) - min(sizes) <= 1
        assert len(batches) == -(-num_items // batch_size)  # no more than are needed
        if num_items > 1 and batch_size > 2:
            assert min(sizes) > 1


def test_in_order_is_in_order():
    assert flat(in_order(29, 4)) == list(range(29))


def test_the_seed_decides_the_order():
    orders = [tuple(flat(shuffled(29, 4, seed(number)))) for number in range(10)]
    assert flat(shuffled(29, 4, seed(3))) == list(orders[3])
    assert len(set(orders)) == 10
    generator = seed(0)
    epochs = [flat(shuffled(29, 4, generator)) for _ in range(2)]  # one goes on from the other
    assert epochs[0] != epochs[1]


def test_every_item_may_come_anywhere():
    first = Counter(flat(shuffled(5, 2, seed(number)))[0] for number in range(500))
    assert set(first) == set(range(5))
    assert all(60 < times < 140 for times in first.values())


LABELS = torch.tensor([5, 2, 9, 2, 5, 9, 2, 5, 9, 9, 2, 5, 9, 7, 7, 7, 7])  # classes of 4 and 5


@pytest.mark.parametrize("number", range(5))
def test_a_batch_holds_so_many_different_items_of_each_of_its_classes(number):
    batches = by_class(LABELS, 8, 4, seed(number))
    assert len(batches) == len(LABELS) // 8
    for batch in batches:
        assert list(Counter(LABELS[batch].tolist()).values()) == [4, 4]
        assert len(set(batch.tolist())) == 8
        assert LABELS[batch].unique_consecutive().numel() == 2  # a class stays together


def test_a_batch_size_that_does_not_fit_is_not_exceeded():
    assert [len(batch) for batch in by_class(LABELS, 11, 4, seed(0))] == [8]


def test_every_class_comes_up_equally_often():
    labels = torch.arange(6).repeat_interleave(torch.tensor([2, 2, 2, 2, 2, 50]))  # one is large
    batches = by_class(labels, 6, 2, seed(0))
    assert len(batches) == 10
    times = Counter(labels[torch.cat(batches)].tolist())
    assert set(times.values()) == {10}  # 60 items in all, of six classes


def test_where_classes_do_not_fill_the_last_batch_they_come_about_equally_often():
    labels = torch.arange(7).repeat_interleave(100)
    times = Counter(labels[torch.cat(by_class(labels, 6, 2, seed(0)))].tolist())
    assert set(times) == set(range(7))
    assert max(times.values()) < 1.4 * min(times.values())


def test_classes_and_items_are_drawn_at_random():
    labels = torch.arange(6).repeat_interleave(10)
    batches = [by_class(labels, 4, 2, seed(number))[0] for number in range(200)]
    classes = Counter(labels[torch.cat(batches)].tolist())
    assert all(80 < classes[label] < 190 for label in range(6))  # 133 expected
    assert set(flat(batches)) == set(range(60))
    assert flat([batches[7]]) == flat(by_class(labels, 4, 2, seed(7))[:1])


def test_of_a_small_class_items_come_twice_as_seldom_as_can_be():
    labels = torch.tensor([0, 1, 0, 1, 0, 1, 1, 1, 1])  # three and six
    for number in range(5):
        for batch in by_class(labels, 8, 4, seed(number)):
            times = Counter(batch[labels[batch] == 0].tolist())
            assert sorted(times.values()) == [1, 1, 2]
            assert len(set(batch[labels[batch] == 1].tolist())) == 4
    alone = by_class(torch.tensor([3, 4, 4, 4, 4, 4]), 6, 3, seed(0))[0]
    assert alone.tolist().count(0) == 3


def test_fewer_items_than_a_batch_still_make_one():
    (batch,) = by_class(torch.tensor([0, 0, 1, 1]), 8, 4, seed(0))
    assert Counter(batch.tolist()) == {0: 2, 1: 2, 2: 2, 3: 2}


def test_too_few_classes_are_told_of():
    with pytest.raises(
        DataError, match="batch of 8 items, 2 of each class, requires 4 classes, but there are 3"
    ):
        by_class(torch.tensor([0, 0, 1, 1, 2, 2]), 8, 2, seed(0))


def test_no_class_is_twice_in_a_batch_where_there_are_enough():
    labels = torch.arange(7).repeat_interleave(8)
    for number in range(20):
        for batch in by_class(labels, 8, 2, seed(number)):
            assert len(set(labels[batch].tolist())) == 4
            assert len(set(batch.tolist())) == 8
