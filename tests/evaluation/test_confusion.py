"""Classes that the old space cannot tell apart, against loops over all items."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import nobackfill as nb
from nobackfill.data.listing import GroundTruth
from nobackfill.errors import ConfigError, DataError
from nobackfill.evaluation import confusion
from nobackfill.evaluation.confusion import confused_classes, is_confused, similar_pairs

CLASSES, PER_CLASS, DIM = 9, 6, 4
COUNT = CLASSES * PER_CLASS
NAMES = [f"class {i % CLASSES}" for i in range(COUNT)]
CAMERA = np.arange(COUNT) // CLASSES % 2


def files(seed, noise, *, dim=DIM, **columns):
    generator = torch.Generator().manual_seed(0)
    middle = torch.randn(CLASSES, dim, generator=generator)[torch.arange(COUNT) % CLASSES]
    generator.manual_seed(seed)
    noise = noise * torch.randn(COUNT, dim, generator=generator)
    length = torch.rand(COUNT, 1, generator=generator) + 0.5  # means are of directions
    ids = [f"item {i}" for i in range(COUNT)]
    vectors = (middle + noise) * length
    return nb.Vectors(ids, vectors, NAMES, columns={"camera": CAMERA, **columns})


OLD, NEW = files(1, 0.9), files(2, 0.7)
ASKS = np.arange(COUNT) // CLASSES % 3 == 0
SPLIT = {"is_query": ASKS, "is_gallery": ~ASKS}


def unit(vector):
    return vector.double() / vector.double().norm()


def counts(protocol, query, item):
    """Whether an item counts for a query: not itself, nor its class in its camera in re-id."""
    same_camera = NAMES[query] == NAMES[item] and CAMERA[query] == CAMERA[item]
    return query != item and not (protocol == "market1501" and same_camera)


def confused_by_hand(query_file, gallery_file, pair, queries, gallery, protocol="plain"):
    """How many queries of two classes have something to find, and the share that is confused."""
    confused = []
    for i in (i for i in queries if NAMES[i] in pair):
        own, other = [], []
        for j in (j for j in gallery if NAMES[j] in pair and counts(protocol, i, j)):
            score = (unit(query_file.vectors[i]) @ unit(gallery_file.vectors[j])).item()
            (own if NAMES[j] == NAMES[i] else other).append(score)
        if own:
            confused.append(max(other) >= max(own))
    return len(confused), sum(confused) / len(confused)


def mean_cosine(file, pair, gallery):
    sums = [sum(unit(file.vectors[j]) for j in gallery if NAMES[j] == name) for name in pair]
    return (unit(sums[0]) @ unit(sums[1])).item()


def check(found, queries, gallery, protocol="plain"):
    """Every pair, against loops."""
    for one in found:
        pair = one.one, one.other
        assert pair[0] < pair[1]
        for name, sides in {
            "old_old": (OLD, OLD),
            "new_old": (NEW, OLD),
            "new_new": (NEW, NEW),
        }.items():
            number, share = confused_by_hand(*sides, pair, queries, gallery, protocol)
            assert one.queries == number
            assert getattr(one, name) == pytest.approx(share), (pair, name)
        assert one.old_cosine == pytest.approx(mean_cosine(OLD, pair, gallery), abs=1e-6)
        assert one.new_cosine == pytest.approx(mean_cosine(NEW, pair, gallery), abs=1e-6)


def nearest_by_hand(file, gallery, neighbors):
    """The pairs of each class and its nearest, the most similar first."""
    names = sorted({NAMES[j] for j in gallery})
    pairs = {}
    for name in names:
        cosine = {o: mean_cosine(file, (name, o), gallery) for o in names if o != name}
        for other in sorted(cosine, key=lambda o: -cosine[o])[:neighbors]:
            pairs[min(name, other), max(name, other)] = cosine[other]
    return sorted(pairs, key=lambda pair: -pairs[pair])


@pytest.mark.parametrize("protocol", ["plain", "market1501"])
def test_every_pair_by_loops(protocol):
    everyone = range(COUNT)
    found = confused_classes(nb.evaluate(OLD, NEW, protocol=protocol), count=1000)
    assert [(one.one, one.other) for one in found] == nearest_by_hand(OLD, everyone, 5)
    assert len(found) < CLASSES * (CLASSES - 1) / 2  # five nearest are not all
    shares = {(one.old_old, one.new_old, one.new_new) for one in found}
    assert len(shares) > 5  # there is something to see
    check(found, everyone, everyone, protocol)


def test_queries_that_are_not_in_the_gallery_by_loops():
    old, new = (replace(file, columns={**file.columns, **SPLIT}) for file in (OLD, NEW))
    queries, gallery = (np.flatnonzero(flag).tolist() for flag in SPLIT.values())
    found = confused_classes(nb.evaluate(old, new), count=1000)
    assert found
    check(found, queries, gallery)


def test_as_many_pairs_as_asked_for_the_most_similar_first():
    evaluation = nb.evaluate(OLD, NEW)
    found = confused_classes(evaluation, count=1000)
    cosines = [one.old_cosine for one in found]
    assert cosines == sorted(cosines, reverse=True)
    assert confused_classes(evaluation, count=3) == found[:3]
    assert len(confused_classes(evaluation)) == 20
    assert len({frozenset((one.one, one.other)) for one in found}) == len(found)
    with pytest.raises(ConfigError, match="count is 0"):
        confused_classes(evaluation, count=0)


def test_blocks_do_not_matter(monkeypatch):
    evaluation = nb.evaluate(OLD, NEW, protocol="market1501")
    whole = confused_classes(evaluation)
    monkeypatch.setattr(confusion, "rows_per_block", lambda bytes_per_row: 1)
    assert confused_classes(evaluation) == whole
    means = F.normalize(OLD.vectors, dim=1)
    assert torch.equal(similar_pairs(means), similar_pairs(means, block=2))


def two_classes(vectors, labels, **columns):
    ids = list(range(len(labels)))
    file = nb.Vectors(ids, torch.tensor(vectors), labels, columns=columns)
    return nb.evaluate(file, file)


def test_an_item_is_no_proof_of_its_own_class():
    """Each item is nearest to itself, and next to one of the other class."""
    vectors = [[1.0, 0.0], [0.0, 1.0], [0.99, 0.01], [0.01, 0.99]]
    (pair,) = confused_classes(two_classes(vectors, ["a", "a", "b", "b"]))
    assert (pair.one, pair.other, pair.queries) == ("a", "b", 4)
    assert (pair.old_old, pair.new_old, pair.new_new) == (1, 1, 1)
    (pair,) = confused_classes(two_classes(vectors, ["a", "b", "a", "b"]))
    assert (pair.old_old, pair.new_old, pair.new_new) == (0, 0, 0)
    assert pair.old_cosine == pytest.approx(2 * 0.99 * 0.01 / (0.99**2 + 0.01**2), abs=0.02)


def test_a_tie_is_confused_also_between_copies_far_apart_in_the_gallery():
    generator = torch.Generator().manual_seed(0)
    items = torch.randn(30, 37, generator=generator)
    vectors = torch.cat([items, items]).tolist()  # each item once in either class
    labels = ["a"] * 30 + ["b"] * 30
    searched = np.arange(60) % 30 < 20
    found = confused_classes(two_classes(vectors, labels, is_query=~searched, is_gallery=searched))
    assert [one.old_old for one in found] == [1]


@pytest.mark.parametrize("dim", [3, 64, 257, 512])
def test_copies_tie_whatever_their_length(dim):
    generator = torch.Generator().manual_seed(dim)
    query, item = (torch.randn(rows, dim, generator=generator).double() for rows in (50, 1))
    gallery = torch.cat([item, 3 * item])  # one of each class
    is_own = torch.tensor([[True, False]]).expand(50, 2)
    none = torch.zeros(50, 2, dtype=torch.bool)
    assert is_confused(query, gallery, is_own, none).all()
    assert is_confused(query, gallery, ~is_own, none).all()
    assert not is_confused(query, gallery, is_own, ~is_own).any()


def test_without_new_gallery_vectors_two_values_are_left():
    """The new file has queries only."""
    old = replace(OLD, columns={**OLD.columns, **SPLIT})
    new = nb.Vectors(NEW.ids[ASKS], NEW.vectors[ASKS], np.array(NAMES)[ASKS])
    whole = replace(NEW, columns={**NEW.columns, **SPLIT})
    found = confused_classes(nb.evaluate(old, new))
    expected = confused_classes(nb.evaluate(old, whole))
    assert found == [replace(one, new_cosine=None, new_new=None) for one in expected]


def test_a_longer_new_model_is_compared_in_its_own_space():
    longer = files(3, 0.5, dim=11)
    both = replace(longer, vectors=longer.vectors[:, :DIM])
    evaluation = nb.evaluate(OLD, both, new_query=both)
    own = replace(evaluation, vectors={**evaluation.vectors, "new_new": (longer.vectors,) * 2})
    for one in confused_classes(own):
        pair = one.one, one.other
        share = confused_by_hand(longer, longer, pair, range(COUNT), range(COUNT))[1]
        assert one.new_new == pytest.approx(share)
        assert one.new_cosine == pytest.approx(mean_cosine(longer, pair, range(COUNT)), abs=1e-6)


def test_queries_with_nothing_to_find_do_not_count():
    """`c` and `d` are alone, and nothing can be said of them but what `a` finds there."""
    vectors = [[1.0, 0.0], [0.6, 0.8], [0.9, 0.1], [0.9, 0.12]]
    found = confused_classes(two_classes(vectors, ["a", "a", "c", "d"]))
    assert [(one.one, one.other) for one in found] == [("a", "d"), ("a", "c")]
    assert [one.queries for one in found] == [2, 2]
    assert [one.old_old for one in found] == [1, 1]


def test_classes_that_only_ask_or_are_only_searched_are_left_out():
    """What is left are the second and the last of four classes."""
    vectors = [[1.0, 0.0], [0.0, 1.0], [0.5, 0.5], [1.0, 0.1], [0.1, 1.0], [1.0, 0.05]]
    labels = ["b", "d", "c: only asks", "b", "d", "a: only searched"]
    is_query = np.arange(6) < 3
    (pair,) = confused_classes(
        two_classes(vectors, labels, is_query=is_query, is_gallery=~is_query)
    )
    assert (pair.one, pair.other, pair.queries) == ("b", "d", 2)
    assert (pair.old_old, pair.new_old, pair.new_new) == (0, 0, 0)


def test_one_class_alone_is_in_no_pair():
    vectors = [[1.0, 0.0], [0.0, 1.0], [1.0, 0.1]]
    is_query = np.array([True, False, False])
    evaluation = two_classes(vectors, ["a", "b", "a"], is_query=is_query, is_gallery=~is_query)
    assert confused_classes(evaluation) == []


@pytest.mark.parametrize("labels", [[7, 7, 30, 30], ["7", "7", "30", "30"]])
def test_names_are_those_of_the_column(labels):
    (pair,) = confused_classes(
        two_classes([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.1, 1.0]], labels)
    )
    assert (pair.one, pair.other) == tuple(sorted({labels[0], labels[2]}))
    assert type(pair.one) is type(labels[0])


def test_lists_have_no_classes_to_confuse():
    relevant = {f"item {i}": [f"item {(i + 1) % COUNT}"] for i in range(COUNT)}
    evaluation = nb.evaluate(OLD, NEW, ground_truth=GroundTruth(relevant, {}))
    with pytest.raises(DataError, match="confused classes need labels"):
        confused_classes(evaluation)


def test_equally_similar_pairs_come_in_the_order_of_their_rows():
    assert similar_pairs(torch.eye(3)).tolist() == [[0, 1], [0, 2], [1, 2]]
    assert similar_pairs(torch.eye(3)[:1]).tolist() == []
