import math

import pytest
import torch

from nobackfill.errors import DataError
from nobackfill.gallery.planning import order
from nobackfill.gallery.planning.order import (
    UNCLEAR_FIRST,
    best_first,
    expected_gain,
    margin,
    random_order,
    uncertainty,
    weighed,
)


def drawn(items=23, dim=4, classes=5, seed=0):
    generator = torch.Generator().manual_seed(seed)
    vectors = torch.randn(items, dim, generator=generator, dtype=torch.float64)
    return vectors, torch.randint(classes, (items,), generator=generator)


def cosine(one, other):
    return float(one @ other / (one.norm() * other.norm()))


def margins_by_hand(vectors, classes):
    """The formula of the docstring, one item and one class at a time."""
    unit = [row / row.norm() for row in vectors]
    found = []
    for i, mine in enumerate(classes.tolist()):
        to = {}
        for c in set(classes.tolist()):
            members = [j for j in range(len(unit)) if classes[j] == c]
            if c == mine and len(members) > 1:
                members = [j for j in members if j != i]
            to[c] = cosine(unit[i], sum(unit[j] for j in members))
        found.append(to.pop(mine) - max(to.values()))
    return torch.tensor(found, dtype=torch.float64)


def entropies_by_hand(vectors, classes, temperature):
    unit = [row / row.norm() for row in vectors]
    known = sorted(set(classes.tolist()))
    means = [sum(unit[j] for j in range(len(unit)) if classes[j] == c) for c in known]
    found = []
    for row in unit:
        weights = [math.exp(cosine(row, mean) / temperature) for mean in means]
        shares = [one / sum(weights) for one in weights]
        found.append(-sum(one * math.log(one) for one in shares))
    return torch.tensor(found, dtype=torch.float64)


@pytest.mark.parametrize("block", [1, 7, 10**9])
@pytest.mark.parametrize("seed", range(3))
def test_margins_are_their_formula_written_as_loops(monkeypatch, seed, block):
    monkeypatch.setattr(order, "rows_per_block", lambda _: block)
    vectors, classes = drawn(seed=seed)
    torch.testing.assert_close(margin(vectors, classes), margins_by_hand(vectors, classes))


@pytest.mark.parametrize("block", [1, 7, 10**9])
@pytest.mark.parametrize("temperature", [0.05, 1.0])
def test_uncertainty_is_its_formula_written_as_loops(monkeypatch, temperature, block):
    monkeypatch.setattr(order, "rows_per_block", lambda _: block)
    vectors, classes = drawn(seed=3)
    torch.testing.assert_close(
        uncertainty(vectors, classes, temperature=temperature),
        entropies_by_hand(vectors, classes, temperature),
    )


def test_an_item_alone_in_its_class_is_compared_with_itself():
    vectors, classes = drawn()
    classes[4] = 99  # and numbers that no item has are no classes
    expected = margins_by_hand(vectors, classes)
    found = margin(vectors, classes)
    torch.testing.assert_close(found, expected)
    assert found[4] > 0


def test_a_class_of_two_opposites_has_no_direction_for_others():
    vectors = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.6, 0.8]])
    found = margin(vectors, torch.tensor([0, 0, 1, 1]))
    assert found.isfinite().all()
    assert found[2].item() == pytest.approx(0.8)  # the others are at 0


def test_lengths_do_not_matter_and_halves_are_counted_in_single_precision():
    vectors, classes = drawn()
    longer = vectors * torch.arange(1, len(vectors) + 1)[:, None]
    torch.testing.assert_close(margin(longer, classes), margin(vectors, classes))
    half = margin(vectors.half(), classes)
    assert half.dtype == torch.float32
    torch.testing.assert_close(half.double(), margin(vectors, classes), atol=3e-3, rtol=0)


def test_one_class_is_refused():
    vectors, _ = drawn()
    with pytest.raises(DataError, match="two classes or more"):
        margin(vectors, torch.zeros(len(vectors), dtype=torch.int64))


def test_what_is_near_its_class_is_clear_and_what_lies_between_is_uncertain():
    vectors = torch.tensor([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.1, 1.0], [0.7, 0.7]])
    classes = torch.tensor([0, 0, 1, 1, 0])
    assert best_first(margin(vectors, classes)).tolist()[-1] == 4
    assert best_first(uncertainty(vectors, classes)).tolist()[0] == 4


def test_gain_is_its_formula_written_as_loops():
    old, new, traffic = torch.rand(3, 30, generator=torch.Generator().manual_seed(0))
    new[[2, 11]] = torch.nan
    known = new[~new.isnan()]
    values = []
    for i in range(30):
        z = (old[i] - old.mean()) / old.std()
        if i in (2, 11):
            values.append(float(-0.25 * z))
        else:
            values.append(float((new[i] - known.mean()) / known.std() - z / 2))
    expected = [
        traffic[i].item() * sum(other <= one for other in values) / 30
        for i, one in enumerate(values)
    ]
    found = expected_gain(old, new, lean=UNCLEAR_FIRST, traffic=traffic)
    assert found.tolist() == pytest.approx(expected)


def test_clear_items_come_first_unless_the_other_way_is_asked_for():
    old = torch.tensor([0.1, 0.5, -0.2])
    assert best_first(expected_gain(old)).tolist() == [1, 0, 2]
    assert best_first(expected_gain(old, lean=UNCLEAR_FIRST)).tolist() == [2, 0, 1]


def test_of_equally_good_new_vectors_the_one_that_rises_more_comes_first():
    old, new = torch.tensor([0.1, 0.5, 0.3]), torch.tensor([0.6, 0.6, 0.1])
    assert best_first(expected_gain(old, new)).tolist() == [0, 1, 2]


def test_traffic_lifts_what_is_asked_for_and_ends_what_is_not():
    old = torch.tensor([0.1, 0.2, 0.3, 0.4])
    traffic = torch.tensor([10.0, 1.0, 1.0, 0.0])
    assert best_first(expected_gain(old, traffic=traffic)).tolist() == [0, 2, 1, 3]


def test_ties_share_a_place_and_keep_their_order():
    score = torch.tensor([0.5, 0.9, 0.5, 0.5])
    assert weighed(score, None).tolist() == [0.75, 1.0, 0.75, 0.75]
    assert best_first(score).tolist() == [1, 0, 2, 3]
    assert expected_gain(torch.full((3,), 0.2)).tolist() == [1.0, 1.0, 1.0]  # no deviation at all


def test_random_orders_hold_every_item_once_and_depend_on_the_seed():
    assert sorted(random_order(50, seed=1).tolist()) == list(range(50))
    assert random_order(50, seed=1).tolist() == random_order(50, seed=1).tolist()
    assert random_order(50, seed=1).tolist() != random_order(50, seed=2).tolist()
