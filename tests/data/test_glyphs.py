import hashlib
import importlib
import math

import numpy as np
import pytest
import torch

from nobackfill.data.glyphs import LARGEST_FAMILY, augment, glyphs
from nobackfill.errors import ConfigError

module = importlib.import_module("nobackfill.data.glyph_drawing")

SMALL = {
    "train_classes": 12,
    "test_classes": 6,
    "images_per_class": 2,
    "queries_per_class": 1,
    "gallery_per_class": 2,
}
KNOBS = {"family_size": 5, "crowding": 0.5, "variation": 1.0, "side": 32, "seed": 0}


def draw(classes, number=0, **knobs):
    classes = np.asarray(classes, dtype=np.int64)
    return module.draw(classes, np.full_like(classes, number), **{**KNOBS, **knobs})


def sha256(data):
    return hashlib.sha256(data.numpy().tobytes()).hexdigest()


# The loops.


def random_bits_by_hand(*key):
    """SplitMix64 in whole numbers of Python, one step for each part of the key."""
    state = 0
    for part in key:
        state = (state + part + 0x9E3779B97F4A7C15) % 2**64
        state = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        state = (state ^ (state >> 27)) * 0x94D049BB133111EB % 2**64
        state = state ^ (state >> 31)
    return state


def test_random_bits_are_splitmix64_in_whole_numbers():
    classes, index = np.ogrid[:4, :3]
    bits = module.random_bits(2**62, 7, classes, index)
    by_hand = [[random_bits_by_hand(2**62, 7, c, i) for i in range(3)] for c in range(4)]
    assert bits.tolist() == by_hand


def ink_by_hand(strokes, width, side):
    """The drawing of one image, pixel by pixel, with the floats of Python."""
    lines = []
    for start, bend, end in strokes:
        points = []
        for piece in range(module.PIECES + 1):
            u = piece / module.PIECES
            points.append(
                [
                    (1 - u) * (1 - u) * start[axis]
                    + 2 * u * (1 - u) * bend[axis]
                    + u * u * end[axis]
                    for axis in range(2)
                ]
            )
        lines += list(zip(points, points[1:], strict=False))
    image = [[0] * side for _ in range(side)]
    for row in range(side):
        for column in range(side):
            x, y = (column + 0.5) / side - 0.5, (row + 0.5) / side - 0.5
            distance = math.sqrt(min(squared_distance_by_hand(x, y, *line) for line in lines))
            covered = min(max((width / 2 - distance) * side + 0.5, 0.0), 1.0)
            image[row][column] = math.floor(covered * 255 + 0.5)
    return image


def squared_distance_by_hand(x, y, start, end):
    along_x, along_y = end[0] - start[0], end[1] - start[1]
    square = along_x * along_x + along_y * along_y
    to_x, to_y = x - start[0], y - start[1]
    share = min(max(to_x * (along_x / square) + to_y * (along_y / square), 0.0), 1.0)
    off_x, off_y = to_x - share * along_x, to_y - share * along_y
    return off_x * off_x + off_y * off_y


def test_ink_is_its_formula_written_as_loops_bit_for_bit():
    strokes = np.random.default_rng(0).uniform(-0.4, 0.4, size=(2, 3, 3, 2))
    width = np.array([0.07, 0.1])
    by_hand = [ink_by_hand(*one, 16) for one in zip(strokes.tolist(), width.tolist(), strict=True)]
    assert module.ink(strokes, width, 16).tolist() == by_hand


def handwritten_by_hand(point, jitter, hand):
    """One point as one hand writes it, with the sine and cosine that the drawing does without."""
    width, height, slant, turn, right, down = hand
    x, y = (value + 0.03 * noise for value, noise in zip(point, jitter, strict=True))
    x, y = (1 + 0.15 * width) * x, (1 + 0.15 * height) * y
    x = x + 0.2 * slant * y
    angle = 2 * math.atan(0.1 * turn)
    x, y = math.cos(angle) * x - math.sin(angle) * y, math.sin(angle) * x + math.cos(angle) * y
    return [x + 0.06 * right, y + 0.06 * down]


def test_a_hand_is_its_formula_written_as_loops():
    strokes = np.random.default_rng(0).uniform(-0.4, 0.4, size=(2, 3, 3, 2))
    classes, number = np.array([4, 9]), np.array([1, 0])
    written = module.handwritten(strokes, classes, number, variation=1.0, seed=5)
    for image, stroke, point in np.ndindex(2, 3, 3):
        key = int(classes[image]), int(number[image])
        jitter = [
            module.uniform(5, module.Purpose.JITTER, *key, stroke, point, axis).item()
            for axis in range(2)
        ]
        hand = [module.uniform(5, module.Purpose.HAND, *key, index).item() for index in range(6)]
        by_hand = handwritten_by_hand(strokes[image, stroke, point], jitter, hand)
        np.testing.assert_allclose(written[image, stroke, point], by_hand, atol=1e-12)


# The meaning.


def test_the_same_pixels_and_classes_on_every_machine():
    data = glyphs(**SMALL, side=24, seed=3)
    assert sha256(data.images) == "e20a8a29ffe450cb0fdf7fa3c22f1fa079de2cd04b7da8d1d20f6a8024af10ca"
    assert data.ids[::9] == [
        "glyph-00000-000",
        "glyph-00002-001",
        "glyph-00009-000",
        "glyph-00016-000",
        "glyph-00019-000",
    ]


def test_a_class_is_the_same_however_many_others_are_drawn():
    few, many = glyphs(**SMALL), glyphs(**{**SMALL, "train_classes": 40, "images_per_class": 3})
    where = {item: row for row, item in enumerate(many.ids)}
    shared = [(row, where[item]) for row, item in enumerate(few.ids) if item in where]
    assert len(shared) > 24  # the training images, and some of the test classes
    for row, other in shared:
        assert torch.equal(few.images[row], many.images[other])


def test_drawing_does_not_depend_on_the_chunk(monkeypatch):
    whole = draw(range(20))
    monkeypatch.setattr(module, "CHUNK", 1)
    assert np.array_equal(draw(range(20)), whole)


def test_another_seed_draws_other_characters_in_another_order():
    zero, one = glyphs(**SMALL, variation=0), glyphs(**SMALL, variation=0, seed=1)
    same = (zero.images == one.images).flatten(1).all(dim=1)
    assert not same.any()
    assert zero.ids != one.ids


def test_the_hands_of_a_class_differ_only_by_variation():
    assert np.array_equal(draw(range(10), 0, variation=0), draw(range(10), 1, variation=0))
    assert (draw(range(10), 0) != draw(range(10), 1)).any(axis=(1, 2)).all()


def unlike_ink(crowding):
    """The share of its ink by which each class differs from each of its siblings."""
    images = draw(range(100), crowding=crowding, variation=0).astype(float).reshape(20, 5, -1)
    first, second = np.triu_indices(5, k=1)
    unlike = abs(images[:, first] - images[:, second]).sum(axis=-1)
    return unlike / (images[:, first] + images[:, second]).sum(axis=-1)


def test_siblings_differ_by_a_little_ink_and_by_less_if_crowded():
    wide, middle, crowded = unlike_ink(0), unlike_ink(0.5), unlike_ink(1)
    assert wide.mean() > 1.3 * middle.mean() > 1.3 * 1.3 * crowded.mean()
    assert wide.max() < 0.5
    assert crowded.max() < 0.2
    assert crowded.min() > 0.02  # but no two are the same


def test_strangers_differ_more_than_siblings():
    images = draw(range(0, 100, 5), variation=0).astype(float).reshape(20, -1)
    unlike = abs(images[1:] - images[:-1]).sum(axis=1) / (images[1:] + images[:-1]).sum(axis=1)
    assert unlike.mean() > 2 * unlike_ink(0.5).mean()


def test_marks_stand_apart_and_beside_the_skeleton():
    family = np.arange(200)
    center = module.marks(family, family_size=LARGEST_FAMILY, length=0.1, seed=0)[:, :, 1]
    apart = np.sqrt(((center[:, :, None] - center[:, None]) ** 2).sum(axis=-1))
    first, second = np.triu_indices(LARGEST_FAMILY, k=1)
    assert apart[:, first, second].min() >= module.MARKS_APART
    lines = module.flatten(module.skeletons(family, seed=0))
    for member in range(5):
        x, y = center[:, member, :1], center[:, member, 1:]
        gap = np.sqrt(module._nearest(x, y, lines[:, :, None]))
        assert gap.min() > 0.9 * module.MARK_GAP


def test_skeletons_have_three_or_four_strokes_on_the_paper():
    strokes = module.skeletons(np.arange(200), seed=0)
    on_paper = (abs(strokes[:, :, [0, 2]]) < 0.5).all(axis=(2, 3)).sum(axis=1)
    assert set(on_paper) == {3, 4}


def test_the_ink_stays_on_the_paper():
    images = draw(range(200))
    edge = np.concatenate([images[:, 0], images[:, -1], images[:, :, 0], images[:, :, -1]], axis=1)
    assert edge.sum() < 0.02 * images.sum()
    assert (images.reshape(200, -1).mean(axis=1) > 0.03 * 255).all()


# The collection.


@pytest.mark.parametrize("family_size", [1, 4, 5])
def test_test_families_are_whole_other_families(family_size):
    data = glyphs(**SMALL, family_size=family_size)
    is_train = data.labels < 12
    families = [set(data.family[part].tolist()) for part in (is_train, ~is_train)]
    assert not families[0] & families[1]
    assert len(families[1]) == math.ceil(6 / family_size)


def test_siblings_are_of_one_family_by_original_class():
    data = glyphs(**SMALL)
    assert data.family.tolist() == [int(item.split("-")[1]) // 5 for item in data.ids]


def test_labels_number_the_old_classes_first():
    data = glyphs(**{**SMALL, "train_classes": 40}, shares=(0.25, 0.5, 1.0))
    assert data.class_counts == (10, 20, 40)
    original = {
        label: int(item.split("-")[1])
        for label, item in zip(data.labels.tolist(), data.ids, strict=True)
    }
    classes = [original[label] for label in range(46)]
    for added in (classes[:10], classes[10:20], classes[20:40], classes[40:]):
        assert added == sorted(added)
    assert sorted(classes[:40]) == list(range(40))
    assert classes[:40] != list(range(40))
    assert classes[40:] == list(range(40, 46))


def test_each_test_class_has_its_queries_and_its_gallery():
    data = glyphs(**{**SMALL, "queries_per_class": 2, "gallery_per_class": 3})
    is_validation = torch.tensor([split == "validation" for split in data.split])
    assert torch.equal(is_validation, data.labels >= 12)
    assert torch.equal(is_validation, data.is_query ^ data.is_gallery)
    assert not (data.is_query & data.is_gallery).any()
    assert data.labels[data.is_query].bincount(minlength=18).tolist() == [0] * 12 + [2] * 6
    assert data.labels[data.is_gallery].bincount(minlength=18).tolist() == [0] * 12 + [3] * 6


def test_every_image_has_a_name_of_its_own():
    data = glyphs(**SMALL)
    assert len(set(data.ids)) == len(data.ids) == len(data.images) == 12 * 2 + 6 * 3


@pytest.mark.parametrize(
    "wrong",
    [
        {"train_classes": 1},
        {"test_classes": 1},
        {"images_per_class": 0},
        {"queries_per_class": 0},
        {"gallery_per_class": -1},
        {"family_size": 0},
        {"family_size": 9},
        {"crowding": 1.5},
        {"crowding": float("nan")},
        {"variation": -0.1},
        {"side": 8},
        {"seed": -1},
    ],
)
def test_a_knob_out_of_range_is_named(wrong):
    ((name, value),) = wrong.items()
    with pytest.raises(ConfigError, match=f"`{name}` must .*, but it is {value}. .* leave it out"):
        glyphs(**{**SMALL, **wrong})


def test_the_shares_are_those_of_order_classes():
    with pytest.raises(ConfigError, match="shares must ascend"):
        glyphs(**SMALL, shares=(1.0, 0.3))


# Augmentation.


def test_augment_is_a_shift_by_at_most_two_pixels():
    image = torch.rand(1, 1, 16, 16, generator=torch.Generator().manual_seed(0))
    batch = augment(image.expand(200, 1, 16, 16), torch.Generator().manual_seed(0))
    padded = torch.nn.functional.pad(image[0, 0], (2, 2, 2, 2))
    shifts = {
        (down, right): padded[down : down + 16, right : right + 16]
        for down in range(5)
        for right in range(5)
    }
    seen = {
        where
        for shifted in batch[:, 0]
        for where, crop in shifts.items()
        if torch.equal(shifted, crop)
    }
    assert seen == set(shifts)
    assert all(any(torch.equal(one, crop) for crop in shifts.values()) for one in batch[:, 0])


def test_augment_keeps_the_ink_and_follows_its_generator():
    images = glyphs(**SMALL).images.float() / 255
    first, again, other = (
        augment(images, torch.Generator().manual_seed(seed)) for seed in (0, 0, 1)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    torch.testing.assert_close(first.sum(), images.sum(), rtol=0.03, atol=0.0)
