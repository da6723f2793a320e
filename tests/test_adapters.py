"""Closed forms, against numpy in float64 and rotations that are known."""

import numpy as np
import pytest
import torch
from scipy.linalg import orthogonal_procrustes

from nobackfill.adapters import Affine, procrustes, ridge
from nobackfill.errors import ConfigError, DataError

ROWS = 40


def draw(*shape, seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def unit(rows):
    return rows / rows.norm(dim=1, keepdim=True)


def rotation(dim, seed):
    return torch.linalg.qr(draw(dim, dim, seed=seed))[0]


def centred(rows):
    rows = unit(rows).numpy()
    return rows - rows.mean(axis=0), rows.mean(axis=0)


def ridge_by_hand(new, old, strength):
    """Each old dimension by itself: least squares with extra rows that pull to 0."""
    (n, n_mean), (o, o_mean) = centred(new), centred(old)
    rows, dim = n.shape
    pull = np.sqrt(strength * sum(n[i, j] ** 2 for i in range(rows) for j in range(dim)) / dim)
    extended = np.concatenate([n, pull * np.eye(dim)])
    weight = np.stack(
        [
            np.linalg.lstsq(extended, np.concatenate([column, np.zeros(dim)]), rcond=None)[0]
            for column in o.T
        ]
    )
    return weight, o_mean - weight @ n_mean


@pytest.mark.parametrize(("new_dim", "old_dim"), [(5, 5), (7, 4), (4, 7)])
@pytest.mark.parametrize("strength", [1e-3, 0.1])
def test_ridge_is_least_squares_with_a_pull_to_zero(new_dim, old_dim, strength):
    new, old = draw(ROWS, new_dim, seed=0), draw(ROWS, old_dim, seed=1)
    weight, bias = ridge_by_hand(new, old, strength)
    found = ridge(new, old, strength=strength)
    np.testing.assert_allclose(found.weight, weight, atol=1e-10)
    np.testing.assert_allclose(found.bias, bias, atol=1e-10)


def test_procrustes_is_that_of_scipy_with_the_best_scale():
    new, old = draw(ROWS, 5, seed=0), draw(ROWS, 5, seed=1)
    (n, n_mean), (o, o_mean) = centred(new), centred(old)
    turned, size = orthogonal_procrustes(n, o)
    weight = size / (n**2).sum() * turned.T
    found = procrustes(new, old)
    np.testing.assert_allclose(found.weight, weight, atol=1e-10)
    np.testing.assert_allclose(found.bias, o_mean - weight @ n_mean, atol=1e-10)


def error(weight, bias, new, old):
    return (unit(new) @ weight.T + bias - unit(old)).square().sum().item()


@pytest.mark.parametrize(("new_dim", "old_dim"), [(5, 5), (7, 4), (4, 7)])
def test_no_turned_scaled_or_shifted_procrustes_is_nearer(new_dim, old_dim):
    new, old = draw(ROWS, new_dim, seed=0), draw(ROWS, old_dim, seed=1)
    found = procrustes(new, old)
    least = error(found.weight, found.bias, new, old)
    middle = unit(new).mean(dim=0)
    for seed in range(20):
        turn = torch.linalg.matrix_exp(0.05 * (a := draw(old_dim, old_dim, seed=seed)) - 0.05 * a.T)
        weight = turn @ found.weight
        bias = found.bias + (found.weight - weight) @ middle
        assert error(weight, bias, new, old) > least
    for scale in (0.97, 1.03):
        weight = scale * found.weight
        bias = found.bias + (found.weight - weight) @ middle
        assert error(weight, bias, new, old) > least
    assert error(found.weight, found.bias + 0.01, new, old) > least


@pytest.mark.parametrize(("new_dim", "old_dim"), [(7, 4), (4, 7), (5, 5)])
def test_procrustes_keeps_angles_but_for_what_it_drops(new_dim, old_dim):
    weight = procrustes(draw(ROWS, new_dim, seed=0), draw(ROWS, old_dim, seed=1)).weight
    assert weight.shape == (old_dim, new_dim)
    size = torch.linalg.svdvals(weight)
    torch.testing.assert_close(size, size[:1].expand_as(size))


@pytest.mark.parametrize("fit", [procrustes, lambda new, old: ridge(new, old, strength=1e-12)])
@pytest.mark.parametrize("lengths", [1.0, 1000.0])
def test_a_rotation_is_recovered(fit, lengths):
    new, turn = draw(ROWS, 5, seed=0) + 0.5, rotation(5, seed=3)
    old = new @ turn.T * (lengths * draw(ROWS, 1, seed=4).abs())  # lengths say nothing
    found = fit(new, old)
    torch.testing.assert_close(found.weight, turn, atol=1e-9, rtol=0)
    torch.testing.assert_close(found.bias, torch.zeros(5).double(), atol=1e-9, rtol=0)
    torch.testing.assert_close(found(7 * new), unit(old), atol=1e-9, rtol=0)


def test_a_longer_space_that_holds_the_shorter_one_is_recovered():
    short, wider = draw(ROWS, 3, seed=0), rotation(6, seed=1)[:, :3]
    up, down = procrustes(short, short @ wider.T), procrustes(short @ wider.T, short)
    torch.testing.assert_close(up(short), unit(short @ wider.T))
    torch.testing.assert_close(down(short @ wider.T), unit(short))


def test_what_comes_out_has_unit_length():
    new = draw(ROWS, 5, seed=0)
    out = procrustes(new, draw(ROWS, 3, seed=1))(100 * new)
    torch.testing.assert_close(out.norm(dim=1), torch.ones(ROWS).double())


def test_half_precision_is_fitted_in_single():
    new, old = (draw(ROWS, 5, seed=seed).half() for seed in range(2))
    for found in (procrustes(new, old), ridge(new, old)):
        assert found.weight.dtype == torch.float32
    torch.testing.assert_close(procrustes(new, old).weight, procrustes(new.float(), old).weight)


def test_an_affine_map_is_its_formula():
    affine = Affine(draw(2, 3, seed=0), draw(2, seed=1))
    new = draw(4, 3, seed=2)
    for row, out in zip(new, affine(new), strict=True):
        plain = affine.weight @ (row / row.norm()) + affine.bias
        torch.testing.assert_close(out, plain / plain.norm())


@pytest.mark.parametrize("fit", [procrustes, ridge])
@pytest.mark.parametrize(
    ("new", "old", "says"),
    [
        (torch.randn(3, 2), torch.randn(4, 2), "of each item, but got 3 and 4"),
        (torch.randn(1, 2), torch.randn(1, 2), "two items or more"),
        (torch.ones(5, 2), torch.randn(5, 2), "differ from each other"),
        (torch.arange(1.0, 6)[:, None] * torch.randn(3), torch.randn(5, 2), "differ from each"),
        (torch.full((5, 2), torch.nan), torch.randn(5, 2), "NaN"),
        (torch.randn(5, 2), torch.ones(5, 3), "wanted old vectors that differ"),
    ],
)
def test_what_cannot_be_fitted_is_told(fit, new, old, says):
    with pytest.raises(DataError, match=says):
        fit(new, old)


@pytest.mark.parametrize("strength", [0.0, -1.0])
def test_ridge_needs_a_strength(strength):
    with pytest.raises(ConfigError, match="above 0"):
        ridge(draw(5, 2, seed=0), draw(5, 2, seed=1), strength=strength)
