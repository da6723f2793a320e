"""Groups of pairs and the held-out share."""

import random

import pytest

from nobackfill.data.pair_groups import group_pairs, hold_out_pairs
from nobackfill.data.texts import TextPair


def pair(query, document, group=""):
    return TextPair(query, document, f"q{query}", f"d{document}", group=group)


@pytest.mark.parametrize(
    ("pairs", "groups"),
    [
        ([("a", "x"), ("b", "y")], ["dx", "dy"]),
        ([("a", "x"), ("a", "y"), ("b", "y")], ["dx", "dx", "dx"]),
        ([("a", "x"), ("b", "y"), ("b", "x")], ["dx", "dx", "dx"]),
        ([("a", "x", "1"), ("b", "y", "2"), ("c", "z", "1")], ["dx", "dy", "dx"]),
    ],
)
def test_pairs_are_connected_by_queries_documents_and_groups(pairs, groups):
    assert [found.group for found in group_pairs([pair(*values) for values in pairs])] == groups


def test_ids_connect_as_texts_do():
    pairs = [
        TextPair("a", "x", "1", "1"),
        TextPair("b", "y", "2", "1"),
        TextPair("c", "x", "3", "3"),
    ]
    assert [found.group for found in group_pairs(pairs)] == ["1", "1", "1"]
    apart = [TextPair("a", "x", "1", "2"), TextPair("b", "y", "2", "1")]  # roles differ
    assert [found.group for found in group_pairs(apart)] == ["2", "1"]


def test_groups_are_those_of_a_slow_search():
    draw = random.Random(0)
    pairs = [pair(str(draw.randrange(60)), str(draw.randrange(60))) for _ in range(50)]
    group = list(range(50))
    changed = True
    while changed:
        changed = False
        for i, one in enumerate(pairs):
            for j, other in enumerate(pairs):
                if (one.query == other.query or one.document == other.document) and (
                    group[i] != group[j]
                ):
                    group[i] = group[j] = min(group[i], group[j])
                    changed = True
    assert [found.group for found in group_pairs(pairs)] == [
        pairs[row].document_id for row in group
    ]


def test_a_group_is_held_out_whole():
    pairs = [pair(str(number), str(number), group=str(number // 3)) for number in range(300)]
    train, held_out = hold_out_pairs(pairs, 0.1, seed=0)
    assert len(held_out) == 30
    assert len(train) == 270
    assert not {one.group for one in train} & {one.group for one in held_out}
    assert hold_out_pairs(pairs, 0.1, seed=0) == (train, held_out)
    assert hold_out_pairs(pairs, 0.1, seed=1) != (train, held_out)


def test_at_least_one_group_is_held_out():
    assert len(hold_out_pairs([pair("a", "b", "1"), pair("c", "d", "2")], 0.01, seed=0)[1]) == 1
