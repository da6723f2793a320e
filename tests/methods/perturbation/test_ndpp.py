import pytest
import torch
import torch.nn.functional as F

from nobackfill.errors import ConfigError, DataError
from nobackfill.methods.perturbation import NeighborPerturbation
from nobackfill.methods.perturbation.ndpp import repulsion


def unit_rows(rows, dim, seed):
    generator = torch.Generator().manual_seed(seed)
    return F.normalize(torch.randn(rows, dim, generator=generator, dtype=torch.float64), dim=-1)


def repulsion_by_hand(x, p, n, k, *, include_self=False, clamp=True):
    """The formula of the docstring, one class and one neighbour at a time."""
    r = torch.zeros_like(x)
    for c in range(len(x)):
        cosine = [(p[c] @ n[j] / (p[c].norm() * n[j].norm())).item() for j in range(len(n))]
        others = [j for j in range(len(n)) if include_self or j != c]
        nearest = sorted(others, key=lambda j: -cosine[j])[:k]
        weight = {j: max(0.0, cosine[j]) if clamp else cosine[j] for j in nearest}
        total = sum(weight.values())
        for j, w in weight.items():
            if total != 0:
                r[c] += w / total * (x[c] - n[j])
    return r


def same(a, b):
    torch.testing.assert_close(a, b, rtol=0, atol=1e-10)


@pytest.mark.parametrize("include_self", [False, True])
@pytest.mark.parametrize("k", [1, 3, 100])
def test_repulsion_is_its_formula_written_as_loops(k, include_self):
    x, p, n = (unit_rows(9, 3, seed=seed) for seed in range(3))
    got = repulsion(x, p, 2 * n, k=k, include_self=include_self)
    same(got, repulsion_by_hand(x, p, 2 * n, k, include_self=include_self))


@pytest.mark.parametrize("clamp", [True, False])
@pytest.mark.parametrize("seek_from", ["old", "moved"])
@pytest.mark.parametrize("accumulate", [True, False])
@pytest.mark.parametrize("normalize", [True, False])
def test_three_epochs_are_the_algorithm_written_as_loops(accumulate, normalize, seek_from, clamp):
    generator = torch.Generator().manual_seed(0)
    old = torch.randn(8, 4, generator=generator, dtype=torch.float64)
    perturb = NeighborPerturbation(
        old, neighbors=3, old_strength=0.2, new_strength=0.1, accumulate=accumulate,
        normalize=normalize, seek_from=seek_from, clamp_weights=clamp,
    )  # fmt: skip
    p = old / old.norm(dim=1, keepdim=True) if normalize else old
    start = moved = p + 0.2 * repulsion_by_hand(p, p, p, 3, clamp=clamp)
    same(perturb.moved, start)
    for _ in range(3):
        new = torch.randn(8, 4, generator=generator, dtype=torch.float64)
        q = new / new.norm(dim=1, keepdim=True) if normalize else new
        x = moved if accumulate else start
        sought = p if seek_from == "old" else x
        moved = x + 0.1 * repulsion_by_hand(x, sought, q, 3, clamp=clamp)
        perturb.update(new)
        same(perturb.moved, moved)


def test_each_reading_moves_prototypes_elsewhere():
    old, new = (torch.randn(9, 4, generator=torch.Generator().manual_seed(s)) for s in (0, 1))
    readings = [{}, {"seek_from": "moved"}, {"clamp_weights": False}, {"normalize": False}]
    options = {"neighbors": 3, "old_strength": 0.5, "new_strength": 0.5}
    ends = []
    for reading in readings:
        perturb = NeighborPerturbation(old, **options, **reading)
        perturb.update(new)
        ends.append(F.normalize(perturb.moved, dim=-1))
    for number, end in enumerate(ends):
        assert not any(torch.allclose(end, other, atol=1e-3) for other in ends[:number])


def test_weights_as_printed_whose_sum_is_zero_push_nothing():
    p = torch.tensor([[1.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    for clamp in (True, False):
        same(repulsion(p, p, p, k=1, clamp_weights=clamp), torch.zeros_like(p))


def test_a_class_without_a_neighbour_on_its_side_is_not_pushed():
    p = torch.tensor([[1.0, 0.0], [-1.0, 0.0]])
    torch.testing.assert_close(repulsion(p, p, p, k=1), torch.zeros(2, 2))


def test_two_crowded_classes_move_apart():
    p = F.normalize(torch.tensor([[1.0, 0.1], [1.0, -0.1]]), dim=-1)
    moved = F.normalize(NeighborPerturbation(p, old_strength=0.5).moved, dim=-1)
    assert moved[0] @ moved[1] < p[0] @ p[1]


def test_without_strength_nothing_moves():
    p, q = unit_rows(6, 4, seed=5), unit_rows(6, 4, seed=6)
    perturb = NeighborPerturbation(p, old_strength=0.0, new_strength=0.0)
    perturb.update(q)
    same(perturb.moved, p)


def test_the_own_new_prototype_pushes_only_if_asked():
    p = torch.eye(3, dtype=torch.float64)  # the new prototype of a class is its only near one
    alone = NeighborPerturbation(p, neighbors=1, old_strength=0.0, new_strength=0.5)
    alone.update(2 * p + 0.5)
    pushed = NeighborPerturbation(
        p, neighbors=1, old_strength=0.0, new_strength=0.5, include_self=True
    )
    pushed.update(2 * p + 0.5)
    assert not torch.allclose(alone.moved, pushed.moved)


def prototypes_in_clusters():
    """4,000 unit prototypes in clusters of 20, as the strengths of the paper were judged on."""
    import numpy as np

    random = np.random.default_rng(0)

    def unit(x):
        return x / np.linalg.norm(x, axis=-1, keepdims=True)

    center = unit(random.standard_normal((200, 256))).repeat(20, axis=0)
    own = unit(random.standard_normal((4000, 256)))
    shared = unit(random.standard_normal(256))
    return torch.from_numpy(unit(0.75 * center + 0.6 * own + 0.15 * shared))


def mean_angle(a, b):
    return torch.rad2deg(F.cosine_similarity(a, b, dim=-1).clamp(-1, 1).acos()).mean().item()


@pytest.fixture(scope="module")
def clusters():
    return prototypes_in_clusters()


@pytest.mark.parametrize(
    ("strength", "degrees"), [(0.01, "0.16"), (0.1, "1.5"), (0.4, "5.1"), (1.0, "9.8")]
)
def test_how_far_old_neighbours_push(clusters, strength, degrees):
    moved = NeighborPerturbation(clusters, old_strength=strength).moved
    angle = mean_angle(moved, clusters)
    assert f"{angle:.2g}" == degrees


def test_how_far_thirty_epochs_push(clusters):
    perturb = NeighborPerturbation(clusters.float())
    angles = {}
    for epoch in range(1, 31):
        perturb.update(clusters.float())
        angles[epoch] = f"{mean_angle(perturb.moved, clusters.float()):.2g}"
    assert [angles[1], angles[10], angles[30]] == ["0.32", "1.7", "4.7"]


def test_goes_on_where_its_state_was_saved():
    p, q = unit_rows(6, 4, seed=5), unit_rows(6, 4, seed=6)
    one, other = NeighborPerturbation(p, neighbors=2), NeighborPerturbation(q, neighbors=2)
    one.update(q)
    other.load_state_dict(one.state_dict())
    one.update(q)
    other.update(q)
    assert torch.equal(one.moved, other.moved)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_keeps_the_precision_it_is_given(dtype):
    p = unit_rows(6, 4, seed=0).to(dtype)
    perturb = NeighborPerturbation(p)
    perturb.update(p)
    assert perturb.moved.dtype is dtype


def test_says_what_is_wrong():
    p = unit_rows(4, 3, seed=0)
    with pytest.raises(DataError, match="at least two classes"):
        NeighborPerturbation(p[:1])
    with pytest.raises(ConfigError, match="neighbors must be at least 1, not 0"):
        NeighborPerturbation(p, neighbors=0)
    with pytest.raises(ConfigError, match="seek_from must be one of old, moved, not 'new'"):
        NeighborPerturbation(p, seek_from="new")
    with pytest.raises(DataError, match="class 2 is NaN"):
        NeighborPerturbation(torch.cat([p[:2], torch.full((1, 3), torch.nan).double()]))
    with pytest.raises(DataError, match="class 1 is NaN, infinite or zero"):
        NeighborPerturbation(torch.cat([p[:1], torch.zeros_like(p[:1]), p[1:]]))
    with pytest.raises(DataError, match="5 dimensions"):
        NeighborPerturbation(p).update(unit_rows(4, 5, seed=1))
    with pytest.raises(DataError, match="diverged"):
        NeighborPerturbation(p).update(torch.full_like(p, torch.nan))


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("place", [(0, 0), (3, 2), (8, 4)])
def test_new_prototypes_that_are_not_finite_are_refused(value, place):
    ndpp = NeighborPerturbation(unit_rows(9, 5, 0), neighbors=3)
    new = unit_rows(9, 5, 1)
    new[place] = value
    with pytest.raises(DataError, match="diverged"):
        ndpp.update(new)
