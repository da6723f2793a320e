import pytest
import torch
import torch.nn.functional as F

from nobackfill.methods.perturbation import crowding
from nobackfill.methods.perturbation.crowding import crowding_gradient, pair_gradient
from nobackfill.ops.softmax_contrast import before_normalizing


def random(*shape, seed):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def hinge_by_hand(x, others, threshold):
    """The summed hinge, one ordered pair at a time."""
    total = x.new_zeros(())
    for c in range(len(x)):
        for j in range(len(others)):
            if j != c:
                total = total + (x[c] @ others[j] - threshold).clamp(min=0)
    return total


def same(a, b):
    torch.testing.assert_close(a, b, rtol=0, atol=1e-10)


@pytest.mark.parametrize("block", [1, 3, 100])
def test_gradient_towards_fixed_rows_is_that_of_the_loops(block):
    x, others = random(8, 4, seed=0).requires_grad_(), random(8, 4, seed=1)
    (expected,) = torch.autograd.grad(hinge_by_hand(x, others, 0.3), x)
    same(crowding_gradient(x.detach(), others, 0.3, block=block), expected)


def test_gradient_among_themselves_is_twice_that_of_one_side():
    x = random(8, 4, seed=0).requires_grad_()
    (expected,) = torch.autograd.grad(hinge_by_hand(x, x, 0.3), x)
    same(2 * crowding_gradient(x.detach(), x.detach(), 0.3, block=3), expected)


@pytest.mark.parametrize("block", [None, 1, 3, 7, 100])
@pytest.mark.parametrize(("classes", "dim"), [(1, 1), (2, 3), (7, 4), (127, 5)])
def test_who_meets_itself_is_met_from_both_sides(block, classes, dim):
    x = torch.nn.functional.normalize(
        torch.randn(classes, dim, dtype=torch.float64, generator=torch.Generator().manual_seed(1)),
        dim=1,
    )
    same(crowding_gradient(x, x, 0.1, block=block), crowding_gradient(x, x.clone(), 0.1))


def test_gradient_of_given_pairs_is_that_of_the_loops():
    x, others = random(6, 4, seed=0).requires_grad_(), random(6, 4, seed=1)
    rows, other_rows = torch.tensor([0, 0, 3, 5, 0]), torch.tensor([1, 2, 4, 0, 1])
    pairs = zip(rows, other_rows, strict=True)
    hinge = sum((x[c] @ others[j] - 0.1).clamp(min=0) for c, j in pairs)
    (expected,) = torch.autograd.grad(hinge, x)
    same(pair_gradient(x.detach(), others, rows, other_rows, 0.1), expected)


def test_gradient_in_the_direction_alone():
    x, weight = random(6, 4, seed=0).requires_grad_(), random(6, 4, seed=1)
    (expected,) = torch.autograd.grad((F.normalize(x, dim=-1) * weight).sum(), x)
    x = x.detach()
    same(before_normalizing(weight, x, F.normalize(x, dim=-1)), expected)


@pytest.mark.parametrize(("classes", "block", "threshold"), [(127, 50, 0.05), (16, 7, -0.31)])
@pytest.mark.parametrize("among", [True, False])
def test_masks_in_halves_give_the_gradient_of_double_precision(
    monkeypatch, classes, block, threshold, among
):
    x, others = (F.normalize(random(classes, 21, seed=seed), dim=1).float() for seed in range(2))
    double, other_double = x.double(), others.double()
    expected = crowding_gradient(double, double if among else other_double, threshold, block=block)
    monkeypatch.setattr(crowding, "masks_in_halves", lambda x: True)
    found = crowding_gradient(x, x if among else others, threshold, block=block)
    torch.testing.assert_close(found.double(), expected, atol=2e-6, rtol=1e-6)


def test_masks_in_halves_are_for_many_classes_in_single_precision(monkeypatch):
    x = random(9, 3, seed=0).float()
    assert not crowding.masks_in_halves(x)  # a CPU
    monkeypatch.setattr(crowding, "sums_in_float32", lambda x: True)
    assert not crowding.masks_in_halves(x)  # few classes
    monkeypatch.setattr(crowding, "LEAST_PRODUCTS", 9 * 9 * 3)
    assert crowding.masks_in_halves(x)
    assert not crowding.masks_in_halves(x.double())
