"""Who is whose partner: always of the same class, never the item itself where there is another."""

import pytest
import torch

from nobackfill.errors import OldSpaceError
from nobackfill.methods.item_index import ClassIndex, ItemClasses

LABELS = torch.tensor([2, 0, 2, 1, 2, 0, 4])  # class 3 has no item, 1 and 4 have a single one
EMBEDDINGS = torch.arange(14.0).reshape(7, 2) + 1


def complete():
    classes = ItemClasses(LABELS, EMBEDDINGS, 5)
    classes.sort()
    return classes


def learned(*rows, sort=True):
    """One that has seen some items."""
    classes = ItemClasses(None, EMBEDDINGS, 5)
    classes.learn(torch.tensor(rows, dtype=torch.int64), LABELS[list(rows)])
    if sort:
        classes.sort()
    return classes


def drawn(classes, item, times=200):
    """All that an item was ever given."""
    torch.manual_seed(0)
    return set(classes.others(torch.full((times,), item)).tolist())


def test_the_index_puts_items_in_the_order_of_their_classes():
    known = torch.tensor([2, -1, 0, 2, -1, 0, 2])
    index = ClassIndex.of(known, 4)
    assert index.order.tolist() == [1, 4, 2, 5, 0, 3, 6]  # those without a class first
    assert index.count.tolist() == [2, 0, 3, 0]
    for item in range(7):
        assert index.order[index.place[item]] == item
    for c in range(4):
        first, count = int(index.first[c]), int(index.count[c])
        assert index.order[first : first + count].tolist() == [
            item for item in range(7) if known[item] == c
        ]


@pytest.mark.parametrize("known", [[-1, -1], [0, 1], [1, 1]])
def test_the_index_counts_classes_without_items(known):
    index = ClassIndex.of(torch.tensor(known), 3)
    assert index.count.tolist() == [known.count(c) for c in range(3)]
    assert sorted(index.order.tolist()) == [0, 1]


@pytest.mark.parametrize(
    ("item", "others"),
    [(0, {2, 4}), (2, {0, 4}), (4, {0, 2}), (1, {5}), (5, {1}), (3, {3}), (6, {6})],
)
def test_an_item_is_given_every_other_of_its_class_and_itself_only_where_there_is_none(
    item, others
):
    assert drawn(complete(), item) == others


def test_others_are_drawn_evenly():
    torch.manual_seed(0)
    found = complete().others(torch.full((3000,), 2))
    assert 1350 < (found == 0).sum() < 1650


def test_a_batch_is_drawn_item_by_item():
    items = torch.tensor([0, 1, 0, 3, 6])
    classes = complete()
    for seed in range(20):
        torch.manual_seed(seed)
        others = classes.others(items)
        assert torch.equal(LABELS[others], LABELS[items])
        assert (others[:3] != items[:3]).all()
        assert torch.equal(others[3:], items[3:])


def test_before_it_was_sorted_everyone_is_alone():
    classes = ItemClasses(LABELS, EMBEDDINGS, 5)
    assert classes.index is None
    assert classes.others(torch.arange(7)).tolist() == list(range(7))


def test_who_is_of_no_known_class_is_alone_and_nobodys_partner():
    classes = learned(0, 2, 1)
    assert drawn(classes, 0) == {2}
    assert drawn(classes, 1) == {1}  # 5 is of its class, but nobody has seen it
    for item in (3, 4, 5, 6):
        assert drawn(classes, item) == {item}
    nothing = learned()
    assert nothing.others(torch.arange(7)).tolist() == list(range(7))


def test_who_is_of_no_known_class_is_given_none_of_the_last():
    classes = ItemClasses(None, EMBEDDINGS, 2)
    classes.learn(torch.tensor([0, 1, 2]), torch.tensor([1, 1, 1]))
    classes.sort()
    assert drawn(classes, 0) == {1, 2}
    assert drawn(classes, 5) == {5}


def test_what_was_seen_since_it_was_sorted_has_partners_among_what_was_there():
    classes = learned(0, 2)
    classes.learn(torch.tensor([4]), LABELS[[4]])
    assert drawn(classes, 4) <= {0, 2}
    assert drawn(classes, 0) == {2}
    classes.sort()
    assert drawn(classes, 0) == {2, 4}


def test_told_classes_are_sorted_once_and_learned_ones_again():
    classes = complete()
    index = classes.index
    classes.sort()
    assert classes.index is index
    classes.learn(None, LABELS[:2])  # and nothing that a batch says changes them
    assert torch.equal(classes.known, LABELS)
    other = learned(0)
    index = other.index
    other.sort()
    assert other.index is not index


def test_members_are_one_item_of_each_class_drawn_evenly():
    torch.manual_seed(0)
    draws = [complete().members(EMBEDDINGS) for _ in range(300)]
    for c in range(5):
        items = {tuple(row) for row in EMBEDDINGS[c == LABELS].tolist()} or {(0.0, 0.0)}
        assert {tuple(members[c].tolist()) for members in draws} == items
    share = sum(members[2].tolist() == EMBEDDINGS[0].tolist() for members in draws) / len(draws)
    assert 0.25 < share < 0.42  # a third
    assert not ItemClasses(LABELS, EMBEDDINGS, 5).members(EMBEDDINGS).any()  # before it was sorted


def test_partners_come_below_the_batch_once_for_each():
    classes, items = complete(), torch.tensor([1, 3, 0])
    stored = -EMBEDDINGS[items]
    torch.manual_seed(0)
    keys = classes.with_partners(stored, items, LABELS[items], EMBEDDINGS, 3)
    assert keys.shape == (12, 2)
    assert torch.equal(keys[:3], stored)  # as they were given, of another view maybe
    for below in keys[3:].split(3):
        assert below[0].tolist() == EMBEDDINGS[5].tolist()
        assert below[1].tolist() == EMBEDDINGS[3].tolist()
        assert below[2].tolist() in (EMBEDDINGS[2].tolist(), EMBEDDINGS[4].tolist())
    assert len({tuple(below[2].tolist()) for below in keys[3:].split(3)}) > 1  # drawn anew


def test_without_partners_nothing_is_looked_up():
    stored = torch.randn(2, 2)
    classes = learned()
    assert classes.with_partners(stored, None, LABELS[:2], EMBEDDINGS, 0) is stored
    assert (classes.known == -1).all()


def test_looking_for_partners_remembers_the_classes_of_the_batch():
    classes = learned()
    items = torch.tensor([0, 4])
    keys = classes.with_partners(EMBEDDINGS[items], items, LABELS[items], EMBEDDINGS, 1)
    assert torch.equal(keys, EMBEDDINGS[[0, 4, 0, 4]])  # nobody was known before
    assert classes.known.tolist() == [2, -1, -1, -1, 2, -1, -1]
    classes.sort()
    keys = classes.with_partners(EMBEDDINGS[items], items, LABELS[items], EMBEDDINGS, 1)
    assert torch.equal(keys, EMBEDDINGS[[0, 4, 4, 0]])


def test_partners_come_in_the_precision_of_the_batch():
    items = torch.tensor([0, 1])
    stored = EMBEDDINGS[items].half()
    keys = complete().with_partners(stored, items, LABELS[items], EMBEDDINGS, 1)
    assert keys.dtype == torch.float16


def test_labels_of_other_items_are_refused():
    with pytest.raises(OldSpaceError, match="7 rows of `embeddings`, but got 6"):
        ItemClasses(LABELS[:6], EMBEDDINGS, 5)
