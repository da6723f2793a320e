import pytest
import torch
import torch.nn.functional as F

from nobackfill.analysis import cosine_spread, crowded_groups, pair_cosines, principal_plane


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


def test_random_directions_spread_as_theory_says():
    assert cosine_spread(random(2000, 256)) == pytest.approx(256**-0.5, rel=0.02)


def test_the_most_crowded_group_comes_first():
    apart, near, nearer = torch.eye(8)[:2].double(), random(1, 8), random(1, 8, seed=1)
    x = torch.cat([apart, near + 0.3 * random(2, 8, seed=2), nearer + 0.01 * random(2, 8, seed=3)])
    groups = torch.tensor([0, 0, 1, 1, 2, 2])
    assert crowded_groups(x, groups, 2) == [2, 1]
    assert crowded_groups(x[:3], torch.tensor([0, 0, 1]), 5) == [0]  # one class is no crowd


def test_the_plane_holds_what_differs_most():
    flat = torch.cat([random(50, 2) * torch.tensor([5.0, 2.0]), torch.zeros(50, 4)], dim=1).double()
    center, plane = principal_plane(flat)
    back = (flat - center) @ plane @ plane.T + center
    torch.testing.assert_close(back, flat)
    torch.testing.assert_close(plane.T @ plane, torch.eye(2).double())
    assert F.cosine_similarity(plane[:, 0], torch.eye(6).double()[0], dim=0) > 0.9


def test_the_largest_entry_of_a_direction_is_positive():
    for seed in range(5):
        _, plane = principal_plane(random(9, 4, seed=seed))
        largest = plane.gather(0, plane.abs().argmax(dim=0, keepdim=True))
        assert (largest > 0).all()


def test_the_plane_is_the_same_wherever_the_vectors_are():
    x = random(50, 6)
    torch.testing.assert_close(principal_plane(x + 100)[1], principal_plane(x)[1])
