"""Ids among ids: as numpy finds them, in less time."""

import numpy as np
import pytest

from nobackfill.errors import DataError
from nobackfill.vectors.ids import is_in, rows_of_ids


def some(number, kind, seed):
    drawn = np.random.default_rng(seed).permutation(3 * number)[:number]
    return drawn if kind == "number" else np.array([f"item-{row}" for row in drawn])


@pytest.mark.parametrize("kind", ["text", "number"])
@pytest.mark.parametrize(("number", "others"), [(1, 1), (2, 9), (40, 30), (30, 40), (50, 50)])
def test_they_are_there_where_numpy_says_so(kind, number, others):
    ids, among = some(number, kind, 0), some(others, kind, 1)
    assert is_in(ids, among).tolist() == np.isin(ids, among).tolist()
    assert is_in(among, ids).tolist() == np.isin(among, ids).tolist()


@pytest.mark.parametrize("kind", ["text", "number"])
def test_the_same_ids_in_any_order_are_there(kind):
    ids = some(20, kind, 0)
    assert is_in(ids, ids).all()
    assert is_in(ids, ids.copy()).all()
    assert is_in(ids, ids[::-1]).all()


@pytest.mark.parametrize("kind", ["text", "number"])
def test_nothing_is_among_nothing(kind):
    ids = some(3, kind, 0)
    assert not is_in(ids, ids[:0]).any()
    assert len(is_in(ids[:0], ids)) == 0
    assert len(is_in(ids[:0], ids[:0])) == 0


def test_texts_of_other_lengths_are_compared_whole():
    short, long = np.array(["a", "b"]), np.array(["ab", "b", "aa"])
    assert is_in(short, long).tolist() == [False, True]
    assert is_in(long, short).tolist() == [False, True, False]


def test_ids_of_two_kinds_are_left_to_numpy():
    numbers, texts = np.array([1, 2]), np.array(["2", "x"])
    assert is_in(numbers, texts).tolist() == np.isin(numbers, texts).tolist()


@pytest.mark.parametrize("kind", ["text", "number"])
def test_rows_lead_back_to_the_ids(kind):
    among = some(50, kind, 0)
    for wanted in (among, among[::-1], among[10:30], among[:0]):
        rows = rows_of_ids(wanted, among)
        assert rows.dtype == np.int64
        assert (among[rows] == wanted).all()


@pytest.mark.parametrize("kind", ["text", "number"])
def test_an_id_that_is_not_there_is_named(kind):
    among = some(5, kind, 0)
    lost = np.append(among[:2], np.array([999]) if kind == "number" else np.array(["nobody"]))
    with pytest.raises(DataError, match=r"1 items have no vector, the first is '?(999|nobody)"):
        rows_of_ids(lost, among)
