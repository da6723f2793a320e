"""Notes on queries and gallery items that a head was fitted on."""

import numpy as np
import pytest
import torch

from nobackfill.errors import DataError
from nobackfill.evaluation.notes import (
    Overlap,
    check_new_queries,
    fitted_note,
    fitted_overlap,
)
from nobackfill.vectors import Vectors


def vectors(ids, fitted=None):
    columns = {} if fitted is None else {"fitted": fitted}
    return Vectors(ids, torch.ones(len(ids), 2), columns=columns)


def test_items_of_the_search_are_counted():
    new = vectors(["a", "b", "c", "d"], [True, True, False, True])
    found = fitted_overlap([new], np.array(["b", "c"]), np.array(["a", "c", "d"]))
    assert found == Overlap(queries=1, num_queries=2, gallery=2, num_gallery=3)


def test_queries_and_gallery_may_be_of_two_files():
    asks, searched = vectors([1, 2], [False, True]), vectors([30, 40], [True, True])
    found = fitted_overlap([asks, searched], np.array([1, 2]), np.array([30, 40, 50]))
    assert found == Overlap(1, 2, 2, 3)
    alone = fitted_overlap([asks, vectors([30, 40])], np.array([1, 2]), np.array([30, 40]))
    assert alone == Overlap(1, 2, 0, 2)


def test_nothing_is_said_where_nothing_is_known():
    ids = np.array(["a", "b"])
    assert fitted_overlap([vectors(ids)], ids, ids) is None
    assert fitted_overlap([vectors(ids, ["well", "badly"])], ids, ids) is None  # someone else's
    assert fitted_note(None) is None
    check_new_queries(None)


def test_nothing_is_said_where_all_are_new():
    ids = np.array(["a", "b"])
    found = fitted_overlap([vectors(ids, [False, False])], ids, ids)
    assert found == Overlap(0, 2, 0, 2)
    assert fitted_note(found) is None
    check_new_queries(found)


def test_known_queries_are_told():
    assert fitted_note(Overlap(5924, 5924, 5924, 5924)) == (
        "5,924 of 5,924 queries were used to fit the head; expect a smaller gain on unseen "
        "queries. To measure that, fit with a column `split`, or on other classes than those of "
        "the queries"
    )
    assert fitted_note(Overlap(1, 2000, 0, 10)).startswith("1 of 2,000 queries were used")


def test_a_known_gallery_is_told_in_other_words():
    note = fitted_note(Overlap(0, 10, 3000, 4000))
    assert note.startswith("3,000 of 4,000 gallery items were used")


def test_nothing_is_declared_by_known_queries_alone():
    with pytest.raises(DataError, match=r"fitted on all 1,200 of them\. Nothing was written\. Fit"):
        check_new_queries(Overlap(1200, 1200, 0, 10))
    check_new_queries(Overlap(1199, 1200, 1200, 1200))
    check_new_queries(Overlap(0, 0, 0, 0))
