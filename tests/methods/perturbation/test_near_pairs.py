import pytest
import torch
import torch.nn.functional as F

from nobackfill.methods.perturbation import OptimizedPerturbation
from nobackfill.methods.perturbation import near_pairs as near
from nobackfill.methods.perturbation.crowding import crowding_gradient
from nobackfill.methods.perturbation.near_pairs import NearPairs, drift, listed_gradient, near_pairs


def unit(rows, dim, seed):
    """Rows in clusters of five: few pairs are near, some of them too near."""
    generator = torch.Generator().manual_seed(seed)
    group, own = (
        torch.randn(number, dim, generator=generator, dtype=torch.float64)
        for number in (-(-rows // 5), rows)
    )
    return F.normalize(F.normalize(group)[torch.arange(rows) // 5] + 0.8 * F.normalize(own), dim=1)


def pairs_by_hand(x, others, threshold):
    return [
        (c, j)
        for c in range(len(x))
        for j in range(len(others))
        if j != c and x[c] @ others[j] > threshold
    ]


@pytest.mark.parametrize("block", [1, 7, 100])
def test_near_pairs_are_those_of_the_loops(block):
    x, others = unit(20, 8, seed=0), unit(20, 8, seed=1)
    for rows, threshold in ((others, 0.3), (x, 0.5)):
        found = near_pairs(x, rows, threshold, most=400, block=block)
        pairs = [(int(c), int(j)) for c, j in zip(*found, strict=True)]
        assert pairs == pairs_by_hand(x, rows, threshold) != []


@pytest.mark.parametrize("number", [1, 2, 127, 1025])
@pytest.mark.parametrize("dim", [1, 3, 255])
@pytest.mark.parametrize("block", [1, 50, None])
def test_pairs_of_rows_with_themselves_are_found_from_both_sides(number, dim, block):
    x = unit(number, dim, seed=number)
    product = x @ x.T
    expected = (product.fill_diagonal_(-1) > 0.5).nonzero().int()
    for others in (x, x.clone()):  # each pair looked for once, or twice
        rows, other_rows = near_pairs(x, others, 0.5, most=number**2, block=block)
        assert rows.equal(expected[:, 0])
        assert other_rows.equal(expected[:, 1])


def test_near_pairs_stop_where_they_are_too_many():
    x = unit(20, 8, seed=0)
    number = len(pairs_by_hand(x, x, 0.5))
    for others in (x, x.clone()):
        assert near_pairs(x, others, 0.5, most=number) is not None
        assert near_pairs(x, others, 0.5, most=number - 1) is None


def test_listed_pairs_count_only_where_they_are_too_near(monkeypatch):
    x, others = unit(20, 8, seed=0), unit(20, 8, seed=0) + 0.05
    rows, other_rows = near_pairs(x, others, 0.2, most=400)
    counts = torch.bincount(rows, minlength=20)
    for block in (3, 2**18):
        monkeypatch.setitem(near.AT_A_TIME, "cpu", block)
        gradient = listed_gradient(
            x, others, rows, other_rows, (counts.cumsum(0) - counts).int(), threshold=0.6
        )
        expected = torch.zeros_like(x)
        for c, j in pairs_by_hand(x, others, 0.6):
            expected[c] += others[j]
        torch.testing.assert_close(gradient, expected, rtol=0, atol=1e-12)


def test_drift_is_never_less_than_what_a_product_changed_by():
    x0, others0 = 2 * unit(30, 8, seed=0), 3 * unit(30, 8, seed=1)
    x, others = x0 + 0.1 * unit(30, 8, seed=2), others0 + 0.2 * unit(30, 8, seed=3)
    changed = (x @ others.T - x0 @ others0.T).abs().max()
    assert changed <= drift(x0, others0, x, others) <= 0.1 * 3.2 + 2 * 0.2 + 1e-9
    assert drift(x0, others0, x0, others0) == 0


@pytest.mark.parametrize("step", [0.002, 0.02, 0.2, 2.0])
def test_wherever_prototypes_go_the_gradient_is_that_of_all_pairs(step):
    x = unit(400, 96, seed=0)
    others, among, towards = x.roll(1, 0), NearPairs(0.6), NearPairs(0.55)
    for number in range(30):
        for pairs, rows, threshold in ((among, x, 0.6), (towards, others, 0.55)):
            expected = crowding_gradient(x, rows, threshold)
            assert expected.any()
            torch.testing.assert_close(pairs.gradient(x, rows), expected, rtol=0, atol=1e-12)
            assert number or pairs._listed is not None
        x = x + step * unit(400, 96, seed=2 + number)
    assert (among.lists_made < 10) == (step < 0.1)
    if step == 2.0:
        assert among.lists_made == towards.lists_made == 30


def test_where_nothing_is_near_nothing_moves():
    x = torch.eye(100)
    pairs = NearPairs(0.6)
    assert not pairs.gradient(x, x).any()
    assert pairs._listed is not None


def test_where_most_is_near_all_pairs_are_compared(monkeypatch):
    x = F.normalize(unit(30, 8, seed=0) + 1, dim=1)
    monkeypatch.setattr(near, "listed_gradient", None)  # not to be called
    torch.testing.assert_close(NearPairs(0.6).gradient(x, x), crowding_gradient(x, x, 0.6))


@pytest.mark.parametrize("hinge", ["inner", "cosine"])
@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_fifty_steps_end_where_those_over_all_pairs_end(monkeypatch, hinge, optimizer):
    p = unit(400, 96, seed=0)
    q = p.roll(1, 0)
    rate = 1e-3 if optimizer == "adam" else 5e-3

    def moved():
        perturb = OptimizedPerturbation(p, hinge=hinge, optimizer=optimizer, learning_rate=rate)
        perturb.update(q)
        return perturb.moved

    listed = moved()
    monkeypatch.setattr(near, "DENSE", 10**9)  # no list is short enough
    torch.testing.assert_close(listed, moved(), rtol=0, atol=1e-10)
    assert (listed - p).norm(dim=1).max() > 0.1
