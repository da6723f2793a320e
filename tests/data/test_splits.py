import pytest
import torch

from nobackfill.data.splits import class_counts, number_classes, order_classes
from nobackfill.errors import ConfigError


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def labels_by_hand(permutation, counts):
    """The rule, one step at a time: what a step adds comes next, in ascending original id."""
    label_of, start = {}, 0
    for end in [*counts, len(permutation)]:
        for class_id in sorted(permutation[start:end]):
            label_of[class_id] = len(label_of)
        start = end
    return [label_of[class_id] for class_id in range(len(permutation))]


@pytest.mark.parametrize("shares", [(1.0,), (0.3, 1.0), (0.2, 0.5, 0.9), (0.1, 0.7)])
def test_labels_are_the_rule_written_as_loops(shares):
    permutation = torch.randperm(30, generator=generator())
    order = number_classes(permutation, shares)
    assert order.label_of.tolist() == labels_by_hand(permutation.tolist(), order.counts)


def test_every_earlier_model_knows_the_first_labels_in_ascending_id():
    order = order_classes(50, (0.2, 0.6, 1.0), generator=generator())
    assert order.counts == (10, 30, 50)
    edges = [0, *order.counts]
    for start, end in zip(edges, edges[1:], strict=False):
        added = order.classes[start:end].tolist()
        assert added == sorted(added)
    assert order.classes.tolist() != list(range(50))


def test_old_classes_are_the_same_whatever_comes_later():
    one, two = (order_classes(50, shares, generator=generator()) for shares in [(0.2,), (0.2, 0.7)])
    assert torch.equal(one.classes[:10], two.classes[:10])


def test_classes_and_labels_are_inverse_and_complete():
    order = order_classes(20, (0.3, 0.6), generator=generator())
    assert torch.equal(order.label_of[order.classes], torch.arange(20))
    assert torch.equal(order.classes.sort().values, torch.arange(20))


def test_the_generator_decides():
    first, again, other = (
        order_classes(100, (0.3, 1.0), generator=generator(seed)) for seed in (0, 0, 1)
    )
    assert torch.equal(first.classes, again.classes)
    assert not torch.equal(first.classes, other.classes)


@pytest.mark.parametrize(
    ("num_classes", "share", "count"),
    [(100, 0.29, 29), (24393, 0.3, 7317), (81313, 0.09, 7318), (10, 0.7 - 0.4, 3), (9, 1 / 3, 3)],
)
def test_counts_round_down_but_not_for_floating_point_dust(num_classes, share, count):
    assert class_counts(num_classes, (share,)) == (count,)


@pytest.mark.parametrize(
    "shares", [(), (0.0, 1.0), (0.3, 1.1), (1.0, 0.3), (0.3, 0.3), (float("nan"),), (-0.3,)]
)
def test_shares_must_ascend_in_the_unit_interval(shares):
    with pytest.raises(ConfigError, match=r"shares must ascend .* but they are .* such as"):
        order_classes(100, shares, generator=generator())


def test_the_first_model_needs_two_classes():
    with pytest.raises(
        ConfigError, match=r"at least two classes, but a share of 0.1 .* is 1\. Take"
    ):
        order_classes(10, (0.1, 1.0), generator=generator())


def test_every_share_must_add_classes():
    with pytest.raises(ConfigError, match=r"must add classes, but .* are \(3, 3\)"):
        order_classes(10, (0.3, 0.35), generator=generator())


def test_the_whole_number_one_is_a_share():
    assert class_counts(10, (0.5, 1)) == (5, 10)
