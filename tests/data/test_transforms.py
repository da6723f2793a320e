"""What a model sees of an image, against the same written slowly, and against other code."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from torch.nn import functional as F

from nobackfill.core.config import ImagesConfig
from nobackfill.data.transforms import augment, cut, describe, erase, normalize, resize, shift

WHOLE = ImagesConfig(size=(9, 7), crop=(), flip=0.0)


def seed(number):
    return torch.Generator().manual_seed(number)


def photo(width, height, number=0):
    """Something smooth in colour, with some noise."""
    generator = np.random.default_rng(number)
    x, y = np.meshgrid(np.linspace(0, 3, width), np.linspace(0, 2, height))
    waves = np.stack([np.sin(x + y), np.cos(2 * x), np.sin(3 * y)], axis=-1)
    pixels = 128 + 90 * waves + generator.normal(0, 12, waves.shape)
    return Image.fromarray(pixels.clip(0, 255).astype(np.uint8))


def weights_by_hand(old, new):
    """Triangles around the place of each new pixel, widened by shrinking: (new, old)."""
    scale = old / new
    reach = max(scale, 1.0)
    weight = np.zeros((new, old))
    for place in range(new):
        middle = (place + 0.5) * scale
        for pixel in range(old):
            weight[place, pixel] = max(0.0, 1 - abs(pixel + 0.5 - middle) / reach)
        weight[place] /= weight[place].sum()
    return weight


@pytest.mark.parametrize("size", [(9, 7), (40, 50), (16, 70)])
def test_bilinear_is_its_formula_written_as_loops(size):
    image = photo(31, 23)
    seen = resize(image, replace(WHOLE, size=size, interpolation="bilinear"))
    down, across = weights_by_hand(23, size[0]), weights_by_hand(31, size[1])
    expected = np.einsum("ih,jw,hwc->cij", down, across, np.asarray(image).astype(np.float64))
    assert seen.dtype == torch.uint8
    assert np.abs(seen.double().numpy() - expected).max() <= 1.01  # rounded once per direction


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("size", [(9, 7), (40, 50)])
def test_torch_resizes_alike(mode, size):
    image = photo(31, 23)
    seen = resize(image, replace(WHOLE, size=size, interpolation=mode)).double()
    pixels = torch.from_numpy(np.asarray(image).astype(np.float64)).permute(2, 0, 1)
    theirs = F.interpolate(pixels[None], size=size, mode=mode, antialias=True)[0].clamp(0, 255)
    assert (seen - theirs).abs().max() <= 2
    other = {"bilinear": "bicubic", "bicubic": "bilinear"}[mode]
    theirs = F.interpolate(pixels[None], size=size, mode=other, antialias=True)[0]
    assert (seen - theirs).abs().max() > 3


@pytest.mark.parametrize(
    ("width", "height", "short", "expected"),
    [
        (60, 40, 20, (20, 30)),  # height and width
        (40, 60, 20, (30, 20)),
        (40, 40, 20, (20, 20)),
        (50, 33, 20, (20, 30)),  # 30.3
        (10, 7, 20, (20, 29)),  # 28.57: enlarged, the nearest
        (1000, 3, 4, (4, 1333)),
    ],
)
def test_one_number_is_the_shorter_side(width, height, short, expected):
    config = ImagesConfig(size=(short,), crop=(2, 2))
    seen = resize(photo(width, height), config)
    assert tuple(seen.shape) == (3, *expected)


def test_the_shorter_side_is_never_too_short():
    for short in range(3, 30):
        config = ImagesConfig(size=(short,), crop=(short, short))
        for width, height in ((49, 31), (31, 49), (7, 7)):
            shape = resize(photo(width, height), config).shape
            assert min(shape[1:]) == short
            assert tuple(cut(resize(photo(width, height), config), config, None).shape[1:]) == (
                short,
                short,
            )


def test_an_image_of_the_right_size_stays_as_it_is():
    image = photo(7, 9)
    seen = resize(image, WHOLE)
    np.testing.assert_array_equal(seen.permute(1, 2, 0).numpy(), np.asarray(image))


def test_grey_is_how_bright_a_colour_looks():
    image = photo(7, 9)
    seen = resize(image, replace(WHOLE, channels=1))
    assert tuple(seen.shape) == (1, 9, 7)
    colours = np.asarray(image).astype(np.float64)
    for y in range(9):
        for x in range(7):
            red, green, blue = colours[y, x]
            assert abs(seen[0, y, x].item() - (0.299 * red + 0.587 * green + 0.114 * blue)) <= 1


PLACES = torch.stack(
    [torch.arange(12)[:, None].expand(12, 10), torch.arange(10).expand(12, 10)]
).byte()  # each pixel says where it is: its row, and its column


@pytest.mark.parametrize(
    ("crop", "corner"), [((8, 6), (2, 2)), ((7, 5), (2, 2)), ((12, 10), (0, 0)), ((1, 1), (5, 4))]
)
def test_the_middle_is_cut(crop, corner):
    seen = cut(PLACES, ImagesConfig(size=(12, 10), crop=crop), None)
    assert tuple(seen.shape) == (2, *crop)
    assert seen[:, 0, 0].tolist() == list(corner)
    assert seen[:, -1, -1].tolist() == [corner[0] + crop[0] - 1, corner[1] + crop[1] - 1]


def test_anything_that_fits_is_cut_equally_often():
    config, generator = ImagesConfig(size=(12, 10), crop=(10, 7)), seed(0)
    times = Counter()
    for _ in range(1200):
        seen = cut(PLACES, config, generator)
        top, left = seen[:, 0, 0].tolist()
        assert torch.equal(seen, PLACES[:, top : top + 10, left : left + 7])
        times[top, left] += 1
    assert set(times) == {(top, left) for top in range(3) for left in range(4)}
    assert all(65 < number < 140 for number in times.values())  # 100 expected


def test_without_a_crop_all_is_seen():
    assert torch.equal(cut(PLACES, WHOLE, seed(0)), PLACES)


@pytest.mark.parametrize(
    ("name", "mean", "deviation"),
    [
        ("imagenet", (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
        ("rstpreid", (0.27722597, 0.26065794, 0.3036557), (0.2609547, 0.2508087, 0.25293276)),
    ],
)
def test_images_are_standardised_by_channel(name, mean, deviation):
    pixels = torch.randint(256, (2, 3, 4, 5), generator=seed(0)).byte()
    seen = normalize(pixels, replace(WHOLE, normalize=name))
    for image in range(2):
        for channel in range(3):
            value = pixels[image, channel].double() / 255
            expected = (value - mean[channel]) / deviation[channel]
            torch.testing.assert_close(seen[image, channel].double(), expected, atol=1e-6, rtol=0)


def test_half_is_from_minus_one_to_one():
    pixels = torch.tensor([0, 51, 102, 255]).byte()
    for channels in (1, 3):
        config = replace(WHOLE, normalize="half", channels=channels)
        seen = normalize(pixels.expand(1, channels, 1, 4), config)
        expected = torch.tensor([-1.0, -0.6, -0.2, 1.0]).expand(1, channels, 1, 4)
        torch.testing.assert_close(seen, expected)


def test_grey_takes_the_mean_over_the_colours():
    seen = normalize(torch.tensor([[[[0, 255]]]]).byte(), replace(WHOLE, channels=1))
    expected = torch.tensor([[[[-0.449 / 0.226, 0.551 / 0.226]]]])
    torch.testing.assert_close(seen, expected)


def shift_by_hand(image, down, right, black):
    moved = np.empty_like(image)
    channels, height, width = image.shape
    for channel in range(channels):
        for y in range(height):
            for x in range(width):
                inside = 0 <= y - down < height and 0 <= x - right < width
                value = image[channel, y - down, x - right] if inside else black[channel]
                moved[channel, y, x] = value
    return moved


def test_shift_is_its_formula_written_as_loops():
    images = torch.randn(9, 3, 4, 5, generator=seed(0), dtype=torch.float64)
    down = torch.tensor([0, 1, -1, 0, 0, 2, -2, 4, 7])
    right = torch.tensor([0, 0, 0, 1, -1, -2, 2, 0, -9])
    black = torch.tensor([7.0, 8.0, 9.0], dtype=torch.float64)
    moved = shift(images, down, right, black=black[None, :, None, None])
    for number in range(9):
        expected = shift_by_hand(
            images[number].numpy(), int(down[number]), int(right[number]), black.numpy()
        )
        np.testing.assert_array_equal(moved[number].numpy(), expected)


def rectangles(kept):
    """Top, left, height and width of what is erased in each image; all channels alike."""
    found = []
    for image in kept:
        gone = (image == 0).all(0)
        assert torch.equal(gone.expand_as(image), image == 0)
        if not gone.any():
            found.append(None)
            continue
        y, x = gone.nonzero().T
        top, left, bottom, right = y.min(), x.min(), y.max() + 1, x.max() + 1
        assert gone[top:bottom, left:right].all()  # no holes: all of a rectangle
        found.append(tuple(int(number) for number in (top, left, bottom - top, right - left)))
    return found


def test_what_is_erased_is_a_rectangle_of_the_size_and_shape_that_are_told():
    side = 100
    found = rectangles(erase(torch.ones(1500, 1, side, side), 1.0, seed(0)))
    areas, shapes = [], []
    for _, _, high, wide in found:
        assert (high + 0.5) * (wide + 0.5) >= 0.02 * side**2  # sides are rounded
        assert (high - 0.5) * (wide - 0.5) <= 0.40 * side**2
        assert (high + 0.5) / (wide - 0.5) >= 0.3
        assert (high - 0.5) / (wide + 0.5) <= 1 / 0.3
        areas.append(high * wide / side**2)
        shapes.append(high / wide)
    assert min(areas) < 0.025
    assert max(areas) > 0.38
    assert abs(np.mean(areas) - 0.21) < 0.015  # all areas alike
    assert min(shapes) < 0.32
    assert max(shapes) > 3.1
    assert abs(np.median(np.log(shapes))) < 0.1  # lying and standing ones alike


def test_any_place_may_be_erased():
    side = 20
    found = rectangles(erase(torch.ones(3000, 1, side, side), 1.0, seed(0)))
    tops = Counter((top, side - high) for top, _, high, _ in found if high == 10)
    assert set(tops) == {(top, 10) for top in range(11)}  # up to the lower edge
    assert max(tops.values()) < 4 * min(tops.values())
    lefts = {left for _, left, _, wide in found if wide == 10}
    assert lefts == set(range(11))


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_so_many_are_erased(share):
    images = torch.randn(3000, 2, 9, 7, generator=seed(1)).abs() + 1
    kept = erase(images, share, seed(0))
    erased = [one is not None for one in rectangles(kept)]
    assert abs(np.mean(erased) - share) < (0.03 if 0 < share < 1 else 1e-9)
    assert torch.equal(kept[kept != 0], images[kept != 0])  # the rest is as it was


def test_a_rectangle_that_would_not_fit_is_cut_to_the_image():
    found = rectangles(erase(torch.ones(500, 1, 40, 4), 1.0, seed(0)))
    for top, left, high, wide in found:
        assert 0 <= top <= 40 - high
        assert 0 <= left <= 4 - wide
        assert high >= 1 <= wide <= 4
    assert any(wide == 4 for *_, wide in found)
    assert rectangles(erase(torch.ones(3, 1, 1, 1), 1.0, seed(0))) == [(0, 0, 1, 1)] * 3


IMAGES = torch.randn(600, 3, 6, 5, generator=seed(2))


def test_without_any_augmentation_nothing_changes():
    assert torch.equal(augment(IMAGES, seed(0), WHOLE), IMAGES)


@pytest.mark.parametrize("share", [0.2, 0.5, 1.0])
def test_so_many_are_mirrored(share):
    seen = augment(IMAGES, seed(0), replace(WHOLE, flip=share))
    mirrored = [torch.equal(one, image.flip(-1)) for one, image in zip(seen, IMAGES, strict=True)]
    for one, image, is_mirrored in zip(seen, IMAGES, mirrored, strict=True):
        assert is_mirrored or torch.equal(one, image)
    assert abs(np.mean(mirrored) - share) < (0.06 if share < 1 else 1e-9)


@pytest.mark.parametrize("channels", [1, 3])
def test_an_image_is_shifted_by_up_to_pad_and_black_comes_in(channels):
    config = replace(WHOLE, pad=2, channels=channels, normalize="imagenet")
    images = IMAGES[:, :channels]
    black = normalize(torch.zeros(1, channels, 1, 1).byte(), config)
    assert (black < -1.5).all()  # black, not the mean colour
    seen = augment(images, seed(0), config)
    times = Counter()
    steps = [(down, right) for down in range(-2, 3) for right in range(-2, 3)]
    moved = {
        step: shift(images, *torch.tensor(step)[:, None].expand(2, 600), black=black)
        for step in steps
    }
    for number in range(600):
        (step,) = [step for step in steps if torch.equal(seen[number], moved[step][number])]
        times[step] += 1
    assert set(times) == set(steps)
    assert all(6 < number < 48 for number in times.values())  # 24 expected


def test_a_part_is_erased_after_all_else():
    config = replace(WHOLE, erase=1.0, pad=1, flip=1.0)
    seen = augment(IMAGES, seed(0), config)
    for top, left, high, wide in rectangles(seen):
        assert 0 <= top <= 6 - high
        assert 0 <= left <= 5 - wide
    black = normalize(torch.zeros(1, 3, 1, 1).byte(), config)
    assert (seen == black).all(1).flatten(1).any(1).float().mean() > 0.5  # it was shifted before


def test_the_seed_decides_all():
    config = replace(WHOLE, erase=0.5, pad=1, flip=0.5)
    assert torch.equal(augment(IMAGES, seed(0), config), augment(IMAGES, seed(0), config))
    assert not torch.equal(augment(IMAGES, seed(0), config), augment(IMAGES, seed(1), config))
    before = torch.get_rng_state()
    augment(IMAGES, seed(0), config)
    assert torch.equal(torch.get_rng_state(), before)


def test_what_a_test_sees_is_told_and_nothing_else():
    config = ImagesConfig(size=(256,), crop=(224, 192))
    changed = [
        replace(config, size=(257,)),
        replace(config, size=(256, 256)),
        replace(config, crop=(192, 224)),
        replace(config, size=(256, 256), crop=()),
        replace(config, channels=1),
        replace(config, interpolation="bilinear"),
        replace(config, normalize="half"),
    ]
    assert len({describe(one) for one in [config, *changed]}) == 8
    for training_only in ({"flip": 0.0}, {"pad": 4}, {"erase": 0.5}):
        assert describe(replace(config, **training_only)) == describe(config)
    assert describe(config) == "RGB, bicubic to short side 256, middle 224 x 192, imagenet"
    assert describe(WHOLE) == "RGB, bicubic to 9 x 7, imagenet"
