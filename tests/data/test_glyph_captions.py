import hashlib
import importlib
import inspect
import math

import numpy as np
import pytest

from nobackfill.data.glyph_captions import MOST_CAPTIONS, describe, describe_marks, describe_strokes
from nobackfill.errors import ConfigError
from nobackfill.models.text.bag_of_words import words

module = importlib.import_module("nobackfill.data.glyph_drawing")

ROWS = {"top": -0.3, "centre": 0.0, "bottom": 0.3}
COLUMNS = {"left": -0.3, "centre": 0.0, "right": 0.3}
SIDEWAYS = {"far left": (-0.5, -0.2), "left": (-0.2, -0.05), "middle": (-0.05, 0.05)}
SIDEWAYS |= {"far right": (0.2, 0.5), "right": (0.05, 0.2)}
DOWNWARD = {"at the top": (-0.5, -0.2), "high up": (-0.2, -0.05), "halfway up": (-0.05, 0.05)}
DOWNWARD |= {"low down": (0.05, 0.2), "at the bottom": (0.2, 0.5)}
SLOPES = {"level": (1, 0), "falling": (1, 1), "upright": (0, 1), "rising": (1, -1)}
SAID = "98361dcaf5f0a365fc05ec1c4581b2a59424f19af508889e70dac913401c9df7"
WAYS = {"up": (0, -1), "down": (0, 1), "left": (-1, 0), "right": (1, 0)}


def captions_of(classes, numbers=(0,), *, captions=5, family_size=5, seed=0):
    """The captions of every class by each number, as (class, number) to a tuple."""
    keys = [(one, number) for one in classes for number in numbers]
    written = describe(
        *(np.array(part, dtype=np.int64) for part in zip(*keys, strict=True)),
        captions=captions,
        family_size=family_size,
        seed=seed,
    )
    return dict(zip(keys, written, strict=True))


def parts(caption):
    """The strokes that a caption tells, and the mark."""
    lines, mark = caption.removesuffix(".").split(", and ")
    lines = lines[0].lower() + lines[1:]
    return lines.split(", "), mark


def place_of(name):
    """Where on the paper a place of the grid is."""
    row, *column = name.split()
    return COLUMNS[column[0] if column else "centre"], ROWS[row]


def nearest_place(point):
    """Of the nine places, the one nearest to a point."""
    nine = [(x, y) for y in ROWS.values() for x in COLUMNS.values()]
    return min(nine, key=lambda place: math.dist(place, point))


# They are true.


@pytest.mark.parametrize("seed", [0, 5])
def test_strokes_are_told_as_they_are_drawn(seed):
    family = np.arange(100)
    for curves, told in zip(
        module.skeletons(family, seed=seed).tolist(),
        describe_strokes(family, seed=seed),
        strict=True,
    ):
        drawn = [curve for curve in curves if max(abs(value) for value in curve[0]) < 0.5]
        assert len(drawn) == len(told)
        for (start, bend, end), line in zip(drawn, told, strict=True):
            route, _, bending = line.partition(" bending ")
            first, last = route.removeprefix("a line from ").split(" to ")
            assert place_of(first) == nearest_place(start)
            assert place_of(last) == nearest_place(end)
            pull = [b - (s + e) / 2 for s, b, e in zip(start, bend, end, strict=True)]
            strength = math.hypot(*pull) / math.dist(start, end)
            assert strength < 0.151 if not bending else strength > 0.149
            if bending:
                ways = [WAYS[way] for way in bending.split(" and ")]
                told_way = [sum(way[axis] for way in ways) for axis in range(2)]
                cosine = sum(a * b for a, b in zip(told_way, pull, strict=True))
                cosine /= math.hypot(*told_way) * math.hypot(*pull)
                assert cosine > math.cos(math.radians(27))


@pytest.mark.parametrize("family_size", [1, 5, 8])
def test_marks_are_told_as_they_stand(family_size):
    family = np.arange(100)
    curves = module.marks(family, family_size=family_size, length=0.2, seed=0)
    told = describe_marks(family, family_size=family_size, seed=0)
    for row, member in np.ndindex(100, family_size):
        (start_x, start_y), (x, y), (end_x, end_y) = curves[row, member].tolist()
        where, slope = told[row][member].removeprefix("a mark ").split(", ")
        height = next(words for words in DOWNWARD if where.startswith(words))
        side = where.removeprefix(height).removeprefix(" on the ").removeprefix(" in the ")
        assert SIDEWAYS[side][0] < x < SIDEWAYS[side][1]
        assert DOWNWARD[height][0] < y < DOWNWARD[height][1]
        along = end_x - start_x, end_y - start_y
        slope_x, slope_y = SLOPES[slope]
        assert along[0] * slope_y == pytest.approx(along[1] * slope_x)


# They tell classes apart, and nothing else.


@pytest.mark.parametrize("family_size", [2, 5, 8])
def test_siblings_share_their_strokes_and_differ_in_their_marks(family_size):
    found = captions_of(range(40 * family_size), captions=12, family_size=family_size)
    for family in range(40):
        members = range(family * family_size, (family + 1) * family_size)
        told = [[parts(caption) for caption in found[member, 0]] for member in members]
        strokes = [{line for lines, _ in each for line in lines} for each in told]
        marks = [{mark for _, mark in each} for each in told]
        assert all(each == strokes[0] for each in strokes)
        assert all(len(each) == 1 for each in marks)
        where = {next(iter(each)).rpartition(",")[0] for each in marks}
        assert len(where) == family_size  # even without the turn, which a dot does not show


def test_the_captions_of_a_class_say_the_same():
    for (one, _), written in captions_of(range(30), range(4)).items():
        (strokes,) = describe_strokes(np.array([one // 5]), seed=0)
        mark = describe_marks(np.array([one // 5]), family_size=5, seed=0)[0][one % 5]
        for caption in written:
            lines, told = parts(caption)
            assert told == mark
            assert set(lines) <= set(strokes)
            assert len(strokes) - 1 <= len(lines) == len(set(lines))


def test_captions_of_an_image_differ_and_some_leave_a_stroke_out():
    found = captions_of(range(30), captions=MOST_CAPTIONS)
    for (one, _), written in found.items():
        assert len(set(written)) == MOST_CAPTIONS
        (strokes,) = describe_strokes(np.array([one // 5]), seed=0)
        assert {len(parts(caption)[0]) for caption in written} == {len(strokes) - 1, len(strokes)}


def test_images_of_a_class_are_told_in_other_words():
    found = captions_of([17], range(8))
    assert len(set(found.values())) > 6


def test_the_built_in_text_encoder_reads_them_to_the_end():
    """The mark comes last, and is what matters."""
    longest = inspect.signature(words).parameters["longest"].default
    found = captions_of(range(0, 2000, 5), captions=MOST_CAPTIONS)
    assert max(len(one.split()) for written in found.values() for one in written) <= longest


# They are the same everywhere.


def test_the_same_captions_on_every_machine():
    found = captions_of(range(50), range(3), seed=3)
    said = "\n".join(caption for written in found.values() for caption in written)
    assert hashlib.sha256(said.encode()).hexdigest() == SAID


def test_captions_do_not_depend_on_those_beside_them():
    together = captions_of(range(60), range(3))
    for key in [(0, 0), (17, 2), (59, 1)]:
        assert captions_of([key[0]], [key[1]])[key] == together[key]
    fewer = captions_of([17], captions=2)[17, 0]
    assert fewer == together[17, 0][:2]


def test_another_seed_tells_of_other_characters():
    assert not set(captions_of(range(20)).values()) & set(captions_of(range(20), seed=1).values())


@pytest.mark.parametrize("captions", [0, MOST_CAPTIONS + 1])
def test_too_many_captions(captions):
    with pytest.raises(ConfigError, match=f"`captions` must lie between 1 and 12, .* {captions}"):
        captions_of([0], captions=captions)
