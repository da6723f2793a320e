"""Collections of texts: pairs within groups, and counts."""

import numpy as np
import pytest

from nobackfill.data.texts import TextPair, Texts
from nobackfill.errors import DataError


def collection():
    return Texts(
        ["q1", "q2", "d1", "d2", "d3", "both"],
        ["ask 1", "ask 2", "doc 1", "doc 2", "doc 3", "both"],
        np.array(["x", "y", "x", "x", "z", "y"]),
        {
            "split": np.array(["train", "train", "train", "unused", "train", "train"]),
            "is_query": np.array([True, True, False, False, False, True]),
            "is_gallery": np.array([False, False, True, True, True, True]),
        },
    )


def test_pairs_are_queries_with_documents_of_their_group_and_split():
    assert collection().pairs("train") == [
        TextPair("ask 1", "doc 1", "q1", "d1", group="x"),
        TextPair("ask 2", "both", "q2", "both", group="y"),  # not `both` with itself
    ]
    assert collection().pairs("validation") == []


def test_counts():
    assert collection().counts() == {
        "texts": 6, "groups": 3, "train_pairs": 2, "queries": 0, "documents": 0,
    }  # fmt: skip


def test_an_empty_collection_is_an_error():
    with pytest.raises(DataError, match="no texts"):
        Texts([], [], np.array([]), {})
