import math

import numpy as np
import pytest
import torch

from nobackfill.data import distortions
from nobackfill.data.distortions import (
    SCALE,
    SHARPNESS,
    SHEAR,
    SHIFT,
    THRESHOLD,
    TURN,
    add_noise,
    affine_maps,
    cover,
    distort,
    redraw_strokes,
    warp,
)


def uniform(*shape, seed=0):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("strength", [0.5, 2.0])
def test_affine_maps_are_rotation_times_shear_times_scale(strength):
    numbers = uniform(5, 6)
    for row, got in zip(numbers.double().numpy(), affine_maps(numbers, strength), strict=True):
        v = strength * (2 * row - 1)
        angle = math.radians(v[0] * TURN)
        turn = [[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]]
        shear = [[1, v[1] * SHEAR], [0, 1]]
        scale = [[math.exp(v[2] * SCALE), 0], [0, math.exp(v[3] * SCALE)]]
        want = np.array(turn) @ shear @ scale
        np.testing.assert_allclose(got[:, :2].numpy(), want, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(got[:, 2].numpy(), v[4:] * SHIFT, rtol=1e-5, atol=1e-6)


def test_the_middle_of_all_numbers_changes_no_place():
    images = uniform(2, 1, 16, 16)
    maps = affine_maps(torch.full((2, 6), 0.5), 1.0)
    torch.testing.assert_close(warp(images, maps), images)


def test_a_shift_moves_ink_against_the_map():
    images = torch.zeros(1, 1, 20, 20)
    images[0, 0, 10, 10] = 1
    maps = torch.tensor([[[1.0, 0, 0.2], [0, 1, 0]]])  # reads 0.2 * 10 pixels to the right
    assert warp(images, maps)[0, 0, 10, 8] == pytest.approx(1, abs=1e-5)


def test_strokes_are_redrawn_as_the_formula_says():
    images, numbers = uniform(3, 1, 7, 7), uniform(3, 3, seed=1)
    got = redraw_strokes(images, numbers).double().numpy()
    for i in range(3):
        a, t, s = numbers[i].double().tolist()
        t = THRESHOLD[0] + (THRESHOLD[1] - THRESHOLD[0]) * t
        s = SHARPNESS[0] + (SHARPNESS[1] - SHARPNESS[0]) * s
        x = np.pad(images[i, 0].double().numpy(), 1)
        for r in range(7):
            for c in range(7):
                mean = x[r : r + 3, c : c + 3].sum() / 9
                blurred = x[r + 1, c + 1] + a * (mean - x[r + 1, c + 1])
                assert got[i, 0, r, c] == pytest.approx(
                    min(max(s * (blurred - t) + 0.5, 0), 1), abs=1e-5
                )


def test_a_low_threshold_thickens_strokes():
    image = torch.zeros(1, 1, 9, 9)
    image[..., 4] = 1
    thick, thin = (
        redraw_strokes(image.clone(), torch.tensor([[0.9, number, 0.5]])).sum()
        for number in (0.0, 1.0)
    )
    assert thick > thin


def test_about_half_of_the_images_are_covered_by_one_rectangle_inside():
    covered = cover(torch.ones(400, 1, 20, 20), uniform(400, 5), 1.0)[:, 0] == 0
    share = covered.flatten(1).any(dim=1).float().mean()
    assert 0.4 < share < 0.6
    for image in covered[covered.flatten(1).any(dim=1)][:20]:
        rows, columns = image.any(dim=1), image.any(dim=0)
        assert torch.equal(image, rows[:, None] & columns[None])
        assert int(rows.sum()) <= 7
        assert int(columns.sum()) <= 7


def test_a_greater_strength_covers_more():
    numbers = uniform(200, 5)
    small, large = (
        (cover(torch.ones(200, 1, 20, 20), numbers, strength) == 0).sum() for strength in (0.5, 2.0)
    )
    assert large > 2 * small


def test_noise_has_the_width_of_its_image():
    generator = torch.Generator().manual_seed(0)
    noisy = add_noise(torch.zeros(2, 1, 60, 60), torch.tensor([0.0, 0.5]), generator)
    assert noisy[0].abs().max() == 0
    assert noisy[1].abs().max() <= 0.25
    assert noisy[1].std() == pytest.approx(0.5 / math.sqrt(12), rel=0.05)


def test_the_generator_decides_everything():
    images = uniform(4, 1, 16, 16)
    one, two, other = (
        distort(images.clone(), torch.Generator().manual_seed(seed)) for seed in (0, 0, 1)
    )
    assert torch.equal(one, two)
    assert not torch.equal(one, other)


def test_each_kind_of_distortion_is_applied(monkeypatch):
    images = (uniform(8, 1, 16, 16) > 0.5).float()
    generator = torch.Generator()
    whole = distort(images.clone(), generator.manual_seed(0))
    for name in ("warp", "redraw_strokes", "cover", "add_noise"):
        with monkeypatch.context() as context:
            context.setattr(distortions, name, lambda images, *rest: images)
            assert not torch.equal(distort(images.clone(), generator.manual_seed(0)), whole), name
