"""Closed forms, against numpy in float64 and rotations that are known."""

import numpy as np
import pytest
import torch
from scipy.linalg import orthogonal_procrustes

from nobackfill.errors import ConfigError, DataError
from nobackfill.head import closed_form as adapters
from nobackfill.head.closed_form import (
    Affine,
    moments,
    paired_blocks,
    procrustes,
    procrustes_of,
    ridge,
    ridge_of,
)

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


def moments_by_hand(new, old):
    """Means, then sums over rows of products of what is left, one product at a time."""
    new, old = (
        [[x / sum(y * y for y in row) ** 0.5 for x in row] for row in side.double().tolist()]
        for side in (new, old)
    )
    rows = len(new)
    means = [[sum(column) / rows for column in zip(*side, strict=True)] for side in (new, old)]
    left = [
        [[x - m for x, m in zip(row, mean, strict=True)] for row in side]
        for side, mean in zip((new, old), means, strict=True)
    ]

    def sums(one, other):
        return [
            [sum(one[row][i] * other[row][j] for row in range(rows)) for j in range(len(other[0]))]
            for i in range(len(one[0]))
        ]

    found = [*means, sums(left[0], left[0]), sums(left[1], left[0])]
    return [torch.tensor(one, dtype=torch.float64) for one in found]


def as_list(known):
    return [known.new_mean, known.old_mean, known.new_new, known.old_new]


@pytest.mark.parametrize("parts", [[ROWS], [13, ROWS - 13], [1] * ROWS, [ROWS - 1, 1]])
def test_moments_are_sums_over_rows_whatever_the_parts(parts):
    new, old = draw(ROWS, 5, seed=0) + 1, 7 * draw(ROWS, 3, seed=1) - 2
    known = moments(zip(new.split(parts), old.split(parts), strict=True))
    for found, expected in zip(as_list(known), moments_by_hand(new, old), strict=True):
        assert found.dtype == torch.float64
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("parts", [[ROWS], [1] * ROWS])
def test_a_mean_much_larger_than_what_is_left_cancels_little(parts):
    middle = draw(1, 5, seed=2)
    new, old = (
        unit(1000 * middle[:, :dim] + draw(ROWS, dim, seed=seed)).float()
        for dim, seed in ((5, 0), (3, 1))
    )
    known = moments(zip(new.split(parts), old.split(parts), strict=True))
    expected = moments_by_hand(new, old)
    assert expected[2].trace() < 1e-4  # of 40 rows of unit length
    for found, wanted in zip(as_list(known)[2:], expected[2:], strict=True):
        torch.testing.assert_close(found, wanted, rtol=0, atol=1e-4 * wanted.abs().max().item())


def test_a_first_part_that_is_like_no_other_does_no_harm():
    new, old = (torch.cat([far + draw(20, 4, seed=0), draw(20, 4, seed=1)]) for far in (50, -50))
    known = moments(zip(new.split([10, 30]), old.split([10, 30]), strict=True))
    for found, expected in zip(as_list(known), moments_by_hand(new, old), strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", [torch.float16, torch.float32, torch.float64])
def test_moments_leave_what_they_look_at_alone(kind):
    new, old = unit(draw(ROWS, 5, seed=0)).to(kind), unit(draw(ROWS, 3, seed=1)).to(kind)
    copies = new.clone(), old.clone()
    moments([(new, old)])
    assert torch.equal(new, copies[0])
    assert torch.equal(old, copies[1])


def test_maps_from_moments_are_those_from_vectors():
    new, old = draw(ROWS, 5, seed=0), draw(ROWS, 3, seed=1)
    known = moments(zip(new.split(9), old.split(9), strict=True))
    pairs = [(procrustes_of(known), procrustes(new, old)), (ridge_of(known), ridge(new, old))]
    for strength in (1e-4, 10.0):
        pairs.append((ridge_of(known, strength=strength), ridge(new, old, strength=strength)))
    for one, other in pairs:
        torch.testing.assert_close(one.weight, other.weight)
        torch.testing.assert_close(one.bias, other.bias)


def test_vectors_are_looked_at_some_rows_at_a_time(monkeypatch):
    new, old = draw(ROWS, 5, seed=0), draw(ROWS, 3, seed=1)
    expected = ridge(new, old), procrustes(new, old)
    monkeypatch.setattr(adapters, "BLOCK", 7)
    parts = list(paired_blocks(new, old))
    assert [len(part) for part, _ in parts] == [7, 7, 7, 7, 7, 5]
    assert torch.equal(torch.cat([part for part, _ in parts]), new)
    assert torch.equal(torch.cat([part for _, part in parts]), old)
    for found, whole in zip((ridge(new, old), procrustes(new, old)), expected, strict=True):
        torch.testing.assert_close(found.weight, whole.weight)
        torch.testing.assert_close(found.bias, whole.bias)


@pytest.mark.parametrize("parts", [[], [(torch.ones(1, 2), torch.ones(1, 3))]])
def test_moments_want_two_items(parts):
    with pytest.raises(DataError, match=f"needs two items or more, but there are {len(parts)}"):
        moments(parts)


def test_a_map_in_another_precision_is_the_same_map():
    affine = Affine(draw(2, 3, seed=0), draw(2, seed=1))
    single = affine.to(torch.float32)
    assert (single.weight.dtype, single.bias.dtype) == (torch.float32, torch.float32)
    assert torch.equal(single.weight, affine.weight.float())
    assert torch.equal(single.bias, affine.bias.float())


@pytest.mark.parametrize("fit", [procrustes, ridge])
@pytest.mark.parametrize(
    ("new", "old", "says"),
    [
        (torch.randn(3, 2), torch.randn(4, 2), "3 new and 4 old vectors"),
        (torch.randn(1, 2), torch.randn(1, 2), "two items or more"),
        (torch.ones(5, 2), torch.randn(5, 2), "differ from each other"),
        (torch.arange(1.0, 6)[:, None] * torch.randn(3), torch.randn(5, 2), "differ from each"),
        (torch.full((5, 2), torch.nan), torch.randn(5, 2), "NaN"),
        (torch.randn(5, 2), torch.ones(5, 3), "The old vectors do not differ"),
    ],
)
def test_what_cannot_be_fitted_is_told(fit, new, old, says):
    with pytest.raises(DataError, match=says):
        fit(new, old)


@pytest.mark.parametrize("strength", [0.0, -1.0])
def test_ridge_needs_a_strength(strength):
    with pytest.raises(ConfigError, match="above 0"):
        ridge(draw(5, 2, seed=0), draw(5, 2, seed=1), strength=strength)
