"""Who takes part in an assessment, and in which part of it."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import nobackfill as nb
from nobackfill.errors import DataError
from nobackfill.evaluation.bootstrap import FEWEST_GROUPS
from nobackfill.head.assess.split import (
    Roles,
    divide,
    items_of,
    roles_of_items,
    split_for_assessment,
    training_items,
)

LABELS = np.arange(400) % 50


def a_file(seed, dim, labels=LABELS, dtype=torch.float32, **columns):
    values = torch.randn(400, dim, generator=torch.Generator().manual_seed(seed)).to(dtype)
    ids = [f"item {row}" for row in range(400)]
    return nb.Vectors(ids, values, labels, columns=columns)


def test_classes_are_never_on_both_sides():
    classes = torch.arange(400) % 50
    parts = [set(classes[rows].tolist()) for rows in divide(classes, None, seed=0)]
    assert [len(part) for part in parts] == [30, 10, 10]
    assert len(set.union(*parts)) == 50


@pytest.mark.parametrize("number", [30, 33, 35, 39])
def test_few_classes_leave_enough_to_decide(number):
    classes = torch.arange(400) % number
    sizes = [len(classes[rows].unique()) for rows in divide(classes, None, seed=0)]
    assert sizes[2] == FEWEST_GROUPS
    assert sizes[1] >= 4
    assert sum(sizes) == number


def test_where_a_split_is_told_only_training_items_are_fitted_on():
    classes = torch.arange(400) % 100
    is_training = classes < 40
    fitted, chosen_on, tested_on = divide(classes, is_training, seed=0)
    assert set(classes[fitted].tolist()) == set(range(40))
    assert not set(classes[chosen_on].tolist()) & set(classes[tested_on].tolist())
    assert len(classes[chosen_on].unique()) == len(classes[tested_on].unique()) == 30


def test_another_seed_divides_otherwise():
    classes = torch.arange(400) % 50
    one, again, other = (divide(classes, None, seed=seed)[2].tolist() for seed in (0, 0, 1))
    assert one == again != other


def test_a_class_of_one_item_is_in_no_part():
    classes = torch.cat([torch.arange(80) % 40, torch.tensor([40, 41])])
    assert 80 not in torch.cat(divide(classes, None, seed=0))
    with pytest.raises(DataError, match="at least 30 classes of two items or more.*there are 29"):
        divide(torch.cat([torch.arange(58) % 29, torch.arange(29, 60)]), None, seed=0)


def roles(*rows):
    """Of 400 items, those that are queries and those that are searched."""
    return Roles(*(torch.isin(torch.arange(400) // 50, torch.tensor(own)) for own in rows))


def test_with_roles_only_queries_and_gallery_items_are_tested_on():
    classes = torch.from_numpy(LABELS)
    found = divide(classes, None, roles([0, 1], [1, 2, 3]), seed=0)
    plain = divide(classes, None, seed=0)
    assert torch.equal(found[0], plain[0])  # items that are neither are fitted on
    for rows, expected in zip(found[1:], plain[1:], strict=True):
        assert torch.equal(rows, expected[expected // 50 < 4])


def test_a_class_without_a_query_or_without_a_gallery_is_fitted_on():
    classes = torch.from_numpy(LABELS)
    is_query, is_gallery = roles([0], [1, 2])
    is_query = is_query & (classes != 3)
    is_gallery = is_gallery & (classes != 4)
    fitted, *searched = divide(classes, None, Roles(is_query, is_gallery), seed=0)
    assert {3, 4} <= set(classes[fitted].tolist())
    assert [len(classes[rows].unique()) for rows in (fitted, *searched)] == [30, 10, 10]


def test_with_a_split_a_class_is_tested_on_by_its_roles():
    classes, is_training = torch.from_numpy(LABELS), torch.from_numpy(LABELS < 20)
    is_query, is_gallery = roles([0], [1, 2])
    found = divide(classes, is_training, Roles(is_query, is_gallery), seed=0)
    assert found[0].tolist() == is_training.nonzero().flatten().tolist()
    assert all(len(rows) == 15 * 3 for rows in found[1:])
    with pytest.raises(DataError, match="30 classes of a query and another item to find.*are 29"):
        divide(classes, is_training, Roles(is_query & (classes != 49), is_gallery), seed=0)


def test_roles_are_those_of_the_first_file_that_has_them():
    old = a_file(0, 4)
    new = a_file(1, 4, is_query=LABELS < 9, is_gallery=LABELS > 5)
    assert roles_of_items((old, old), old.ids) is None
    found = roles_of_items((old, new), old.ids[::-1])
    assert found.is_query.tolist() == (LABELS < 9)[::-1].tolist()
    assert found.is_gallery.tolist() == (LABELS > 5)[::-1].tolist()
    other = a_file(2, 4, is_query=LABELS < 1, is_gallery=LABELS > 1)
    assert roles_of_items((other, new), old.ids).is_query.tolist() == (LABELS < 1).tolist()
    with pytest.raises(DataError, match="neither file has `is_gallery`"):
        roles_of_items((old, a_file(3, 4, is_query=LABELS < 9)), old.ids)


def test_items_are_matched_by_id_and_in_single_precision():
    old, new = a_file(0, 4, dtype=torch.float16), a_file(1, 6).select(np.arange(399, -1, -2))
    items = items_of(old, new)
    assert len(items) == 200
    assert items.ids.tolist() == [f"item {row}" for row in range(1, 400, 2)]
    assert torch.equal(items.old, old.vectors[1::2].float())
    assert torch.equal(items.new, new.vectors.flip(0))
    assert items.class_names[items.classes.numpy()].tolist() == LABELS[1::2].astype(str).tolist()
    assert items.notes == ()


def test_a_class_is_called_by_its_label():
    names = np.array([f"bird {label}" for label in LABELS])
    items = items_of(a_file(0, 4, names), a_file(1, 4, names))
    assert len(items.class_names) == 50
    assert (items.class_names[items.classes.numpy()] == names).all()


def test_of_pairs_a_class_is_called_by_an_item_and_others_are_left_out():
    old, new = a_file(0, 4, labels=None), a_file(1, 6, labels=None)
    items = items_of(old, new, pairs={"item 7": ["item 3", "item 9"], "item 8": ["item 2"]})
    assert items.ids.tolist() == [f"item {row}" for row in (2, 3, 7, 8, 9)]
    rows = [2, 3, 7, 8, 9]
    assert torch.equal(items.new, new.vectors[rows])
    assert torch.equal(items.old, old.vectors[rows])
    assert (items.classes[:, None] == items.classes).int().tolist() == [
        [1, 0, 0, 1, 0], [0, 1, 1, 0, 1], [0, 1, 1, 0, 1], [1, 0, 0, 1, 0], [0, 1, 1, 0, 1],
    ]  # fmt: skip
    assert sorted(items.class_names.tolist()) == ["item 2", "item 3"]
    assert items.notes[0].startswith("395 of 400 items are in no pair")


def test_the_parts_hold_the_vectors_and_classes_of_their_rows(monkeypatch):
    monkeypatch.setattr("nobackfill.head.assess.split.QUERIES", 20)
    items = items_of(a_file(0, 4), a_file(1, 6))
    rows = divide(items.classes, None, seed=3)
    parts = split_for_assessment(items, None, seed=3)
    assert torch.equal(parts.fitted.new, items.new[rows[0]])
    assert torch.equal(parts.fitted.old, items.old[rows[0]])
    assert torch.equal(parts.fitted.classes, items.classes[rows[0]])
    for part, some in zip((parts.validation, parts.test), rows[1:], strict=True):
        torch.testing.assert_close(part.new, F.normalize(items.new[some], dim=1))
        torch.testing.assert_close(part.old, F.normalize(items.old[some], dim=1))
        own = items.classes[some]
        assert torch.equal(part.classes[:, None] == part.classes, own[:, None] == own)
        assert part.classes.unique().tolist() == list(range(10))
        assert len(part.queries) == 20


@pytest.mark.parametrize("told", ["train", "validation"])
def test_a_split_that_tells_all_items_apart_from_none_tells_nothing(told):
    files = a_file(0, 4, split=np.full(400, told)), a_file(1, 4)
    assert training_items(files, files[0].ids) is None
    split = np.where(LABELS < 20, "train", "validation")
    files = a_file(0, 4), a_file(1, 4, split=split)
    assert training_items(files, files[0].ids).tolist() == (LABELS < 20).tolist()
