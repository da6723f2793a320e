import math

import numpy as np
import pytest
import torch

from nobackfill.evaluation.geometry import (
    cosine_spread,
    crowded_groups,
    pair_cosines,
    similarity_histogram,
    uniformity,
)


def random(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def cosine(a, b):
    return (a @ b / (a.norm() * b.norm())).item()


def test_pair_cosines_are_each_pair_once():
    x = random(5, 3)
    by_hand = [cosine(x[i], x[j]) for i in range(5) for j in range(i + 1, 5)]
    assert pair_cosines(x).tolist() == pytest.approx(by_hand)


@pytest.mark.parametrize("center", [True, False])
def test_cosine_spread_is_their_population_deviation(center):
    x = random(5, 3) + 1
    y = x - x.mean(dim=0) if center else x
    values = [cosine(y[i], y[j]) for i in range(5) for j in range(i + 1, 5)]
    mean = sum(values) / len(values)
    by_hand = (sum((value - mean) ** 2 for value in values) / len(values)) ** 0.5
    assert cosine_spread(x, center=center) == pytest.approx(by_hand)


@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("block", [1, 4, 7, 1000, None])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_cosine_spread_is_that_of_all_pairs_whatever_the_block(center, block, dtype):
    with_a_zero = random(6, 3) * (torch.arange(6) > 0)[:, None]
    crowded = random(50, 6) * 1e-3 + 1
    for x in (random(300, 8) + 0.5, random(7, 40), with_a_zero, crowded):
        y = x.to(dtype).double()
        exact = y - y.mean(dim=0) if center else y
        plain = pair_cosines(exact).std(correction=0).item()
        spread = cosine_spread(x.to(dtype), center=center, block=block)
        assert spread == pytest.approx(plain, rel=1e-9, abs=3e-8 if x is crowded else 0)


def test_classes_evenly_apart_have_no_spread_and_one_class_has_none_to_speak_of():
    assert cosine_spread(torch.eye(5)) == 0
    assert cosine_spread(random(1, 3).expand(4, 3)) == pytest.approx(0, abs=1e-7)
    assert math.isnan(cosine_spread(random(1, 3)))
    assert math.isnan(cosine_spread(random(1, 3), center=True))


def test_the_spread_of_many_classes_is_found_without_their_pairs():
    assert cosine_spread(random(100_000, 16).float()) == pytest.approx(0.25, rel=0.01)  # 40 GB


def test_random_directions_spread_as_theory_says():
    assert cosine_spread(random(2000, 256)) == pytest.approx(256**-0.5, rel=0.02)


def test_the_most_crowded_group_comes_first():
    apart, near, nearer = torch.eye(8)[:2].double(), random(1, 8), random(1, 8, seed=1)
    x = torch.cat([apart, near + 0.3 * random(2, 8, seed=2), nearer + 0.01 * random(2, 8, seed=3)])
    groups = torch.tensor([0, 0, 1, 1, 2, 2])
    assert crowded_groups(x, groups, 2) == [2, 1]
    assert crowded_groups(x[:3], torch.tensor([0, 0, 1]), 5) == [0]  # one class is no crowd


def uniformity_by_hand(vectors):
    """The mean over pairs of different items, one pair at a time."""
    unit = [v / v.norm() for v in vectors]
    values = [
        math.exp(-2 * (a - b).square().sum().item()) for i, a in enumerate(unit) for b in unit[:i]
    ]
    return math.log(sum(values) / len(values))


@pytest.mark.parametrize("block", [1, 2, 5, 9, None])
def test_uniformity_is_its_formula_written_as_loops(block):
    x = random(9, 3) + 0.5
    assert uniformity(x, block=block) == pytest.approx(uniformity_by_hand(x))
    assert uniformity(x.float(), block=block) == pytest.approx(uniformity_by_hand(x), abs=1e-5)


def test_uniformity_of_one_point_of_opposites_and_of_nothing():
    assert uniformity(torch.ones(5, 2).double()) == pytest.approx(0)
    assert uniformity(torch.tensor([[1.0, 0], [-3, 0]]).double()) == pytest.approx(-8)
    assert math.isnan(uniformity(random(1, 3)))
    many = random(3000, 200)
    assert uniformity(many) == pytest.approx(-4 + 8 / 200, abs=0.01)  # E exp(4 cos) by its moments


def test_uniformity_of_many_rows_is_of_evenly_chosen_ones(monkeypatch):
    monkeypatch.setattr("nobackfill.evaluation.geometry.MOST_ROWS", 10)
    x = random(25, 3)
    chosen = [0, 2, 5, 7, 10, 12, 15, 17, 20, 22]
    assert uniformity(x) == pytest.approx(uniformity_by_hand(x[chosen]))
    assert uniformity(x[:10]) == pytest.approx(uniformity_by_hand(x[:10]))


def histogram_by_hand(prototypes, alike_in, bins):
    """For every space, the cosines of the pairs that are alike; numpy counts them."""
    classes = len(next(iter(prototypes.values())))
    alike = [
        (i, j)
        for i in range(classes)
        for j in range(i + 1, classes)
        if all(cosine(prototypes[name][i], prototypes[name][j]) > 0 for name in alike_in)
    ]
    values = {name: [cosine(x[i], x[j]) for i, j in alike] for name, x in prototypes.items()}
    counts = {
        name: np.histogram(v, bins=bins, range=(-1, 1))[0].tolist() for name, v in values.items()
    }
    return values, counts


@pytest.mark.parametrize("block", [1, 4, 11, 100, None])
@pytest.mark.parametrize("alike_in", [("old", "baseline"), ("old",), ()])
def test_the_histogram_is_its_formula_written_as_loops(block, alike_in):
    spaces = {"old": random(11, 4) + 0.3, "baseline": random(11, 5, seed=1), "ndpp": random(11, 3)}
    values, counts = histogram_by_hand(spaces, alike_in, 10)
    found = similarity_histogram(spaces, alike_in, bins=10, block=block)
    assert found.alike_in == alike_in
    assert found.pairs == len(values["old"])
    assert 0 < found.pairs <= 55
    assert found.edges.tolist() == pytest.approx(np.linspace(-1, 1, 11).tolist())
    for name, value in values.items():
        assert found.counts[name].tolist() == counts[name]
        assert found.mean[name] == pytest.approx(np.mean(value))
        assert found.below_zero[name] == pytest.approx((np.array(value) < 0).mean())
    assert all(found.below_zero[name] == 0 for name in alike_in)


def test_only_classes_alike_in_old_and_baseline_are_counted_unless_told_otherwise():
    old = torch.tensor([[1.0, 0], [0.8, 0.6], [0.6, 0.8], [-1, 0]])
    baseline = torch.tensor([[1.0, 0], [0.8, 0.6], [-0.8, 0.6], [0.8, -0.6]])
    odpp = torch.tensor([[1.0, 0], [0, 1], [1, 0], [1, 0]])
    found = similarity_histogram({"old": old, "baseline": baseline, "odpp": odpp}, bins=2)
    assert found.pairs == 1  # 0 and 1; 0 is a right angle, not alike
    assert found.mean["old"] == pytest.approx(0.8)
    assert found.counts["odpp"].tolist() == [0, 1]  # a cosine of 0 is not below 0
    assert found.below_zero["odpp"] == 0


def test_copies_are_in_the_last_bin_and_without_a_pair_there_is_no_mean():
    x = random(1, 7).float().expand(40, 7) * torch.arange(1, 41)[:, None]  # rounding goes beyond 1
    assert similarity_histogram({"old": x}, ["old"], bins=4).counts["old"].tolist() == [
        0,
        0,
        0,
        780,
    ]
    apart = similarity_histogram({"old": torch.eye(3)}, ["old"], bins=4)
    assert (apart.pairs, apart.counts["old"].tolist()) == (0, [0, 0, 0, 0])
    assert math.isnan(apart.mean["old"])
    assert math.isnan(apart.below_zero["old"])
