"""Test queries that depend on each other, and those that a head has seen."""

import numpy as np
import torch
import torch.nn.functional as F

from nobackfill.evaluation.mixed_scores import make_part
from nobackfill.head.assess.copies import independent_queries
from nobackfill.head.assess.split import FittedItems

CLASSES = torch.arange(40) % 10


def drawn(seed, dim, number=40):
    return torch.randn(number, dim, generator=torch.Generator().manual_seed(seed))


def fitted_items(new=None, old=None):
    """Thirty items of other classes; the first ones are these."""
    rows = drawn(2, 9, 30), drawn(3, 7, 30)
    for side, first in zip(rows, (new, old), strict=True):
        if first is not None:
            side[: len(first)] = first
    return FittedItems(*rows, torch.arange(30) % 5)


def test_without_near_duplicates_a_group_is_a_class():
    part = make_part(drawn(0, 9), drawn(1, 7), CLASSES, most=100)
    found = independent_queries(part, fitted_items())
    assert found.part is part
    assert found.groups.tolist() == CLASSES.tolist()
    assert (found.notes, found.all_seen) == ([], False)


def test_classes_of_near_duplicates_are_one_group():
    """Item 3 is item 15 again, and item 25 is item 17: classes 3, 5 and 7."""
    new, old = drawn(0, 9), drawn(1, 7)
    for side in (new, old):
        side[3], side[25] = 2 * side[15] + 0.01, side[17]
    found = independent_queries(make_part(new, old, CLASSES, most=100), fitted_items())
    expected = torch.where((CLASSES == 5) | (CLASSES == 7), 3, CLASSES)
    assert found.groups.tolist() == expected.tolist()
    assert found.notes[0].startswith("12 of 40 queries are near-duplicates")
    assert len(found.part.queries) == 40


def test_items_that_one_model_alone_confuses_are_no_near_duplicates():
    new, old = drawn(0, 9), drawn(1, 7)
    old[3] = old[15]
    part = make_part(new, old, CLASSES, most=100)
    found = independent_queries(part, fitted_items(new=2 * new[4:5]))
    assert len(np.unique(found.groups)) == 10
    assert (found.notes, len(found.part.queries)) == ([], 40)


def test_groups_with_a_copy_among_the_fitted_items_are_left_out():
    """Of classes 3 and 5, which are one group, item 15 was fitted on; its length is another."""
    new, old = drawn(0, 9), drawn(1, 7)
    for side in (new, old):
        side[3] = side[25]
    part = make_part(new, old, CLASSES, most=100)
    found = independent_queries(part, fitted_items(3 * new[15:16], 5 * old[15:16]))
    kept = ((CLASSES != 3) & (CLASSES != 5)).nonzero().flatten()
    assert torch.equal(found.part.queries, kept)
    assert found.groups.tolist() == CLASSES[kept].tolist()
    assert found.notes[1].startswith("8 of 40 test queries are left out: they are near-duplicates")
    torch.testing.assert_close(found.part.old, F.normalize(old, dim=1))  # all are still searched


def test_if_all_are_seen_none_is_left_out():
    new, old = drawn(0, 9), drawn(1, 7)
    part = make_part(new, old, CLASSES, most=100)
    found = independent_queries(part, fitted_items(new[:10], old[:10]))
    assert found.all_seen
    assert len(found.part.queries) == 40


def test_only_queries_are_compared():
    new, old = drawn(0, 9), drawn(1, 7)
    for side in (new, old):
        side[3] = side[15]
    roles = {"is_query": torch.arange(40) >= 10, "is_gallery": torch.ones(40, dtype=torch.bool)}
    part = make_part(new, old, CLASSES, most=100, **roles)
    found = independent_queries(part, fitted_items(new[:1], old[:1]))
    assert found.groups.tolist() == CLASSES[10:].tolist()
    assert found.notes == []
