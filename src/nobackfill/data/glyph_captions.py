"""Captions of the drawn characters, in plain words.

Strokes of the skeleton are described by the two of nine places that they connect, and the mark by
its place and direction. Only the mark distinguishes the classes of a family, so every caption has
it.
"""

from itertools import permutations

import numpy as np

from nobackfill.data.glyph_drawing import (
    Families,
    Numbers,
    Purpose,
    mark_choices,
    random_bits,
    skeletons,
    stroke_ends,
)
from nobackfill.data.glyphs import check_range

MOST_CAPTIONS = 12  # per image: the orders of three strokes, and those of two of the three
STRAIGHT = 0.15  # share of its length by which the bend of a straight stroke may be off

PLACES = (
    "top left", "top centre", "top right",
    "centre left", "centre", "centre right",
    "bottom left", "bottom centre", "bottom right",
)  # fmt: skip

# Words for `MARK_STEPS`, from left to right and from top to bottom: the same for two neighbours,
# because the marks of a family are two steps apart.
SIDES = (
    "on the far left", "on the far left", "on the left", "on the left", "in the middle",
    "on the right", "on the right", "on the far right", "on the far right",
)  # fmt: skip
HEIGHTS = (
    "at the top", "at the top", "high up", "high up", "halfway up",
    "low down", "low down", "at the bottom", "at the bottom",
)  # fmt: skip
TURNS = ("level", "falling", "upright", "rising")  # words for `DIRECTIONS`, left to right


def describe(
    classes: Numbers, number: Numbers, *, captions: int, family_size: int, seed: int
) -> list[tuple[str, ...]]:
    r"""Writes captions of each image, all different.

    The captions of a class name the same strokes in other orders, about half of them without one of
    the strokes.

    Args:
        classes: Original class of each image.
        number: Number of the image in its class.
        captions: Number of captions of each image.
        family_size: Number of classes in a family.
        seed: Random seed of the characters.

    Example:
        >>> seventeen, third = np.array([17]), np.array([3])
        >>> ((caption,),) = describe(seventeen, third, captions=1, family_size=5, seed=0)
        >>> print(caption.replace(", ", ",\n"))
        A line from bottom centre to bottom left bending up,
        a line from bottom centre to top right bending right,
        a line from bottom centre to bottom right bending up,
        and a mark high up on the left,
        upright.
    """
    check_range(1, MOST_CAPTIONS, captions=captions)
    # Describe the strokes of each family and the mark of each class.
    families, family = np.unique(classes // family_size, return_inverse=True)
    strokes = describe_strokes(families, seed=seed)
    marks = describe_marks(families, family_size=family_size, seed=seed)
    orders = [_orders(len(phrases)) for phrases in strokes]
    # Draw orders of the strokes for each image, by random numbers for all orders there are.
    most = np.arange(max(map(len, orders)))
    keys = random_bits(seed, Purpose.CAPTION, classes[:, None], number[:, None], most)
    written = []
    for row, member, key in zip(family, classes % family_size, keys, strict=True):
        drawn = key[: len(orders[row])].argsort(kind="stable")[:captions]
        phrases = [[strokes[row][stroke] for stroke in orders[row][index]] for index in drawn]
        written.append(tuple(_sentence(parts, marks[row][member]) for parts in phrases))
    return written


def describe_strokes(family: Families, *, seed: int) -> list[tuple[str, ...]]:
    """Describes those strokes of each family's skeleton that are on the paper."""
    curves = skeletons(family, seed=seed)
    start, bend, end = (curves[:, :, point] for point in range(3))
    pull, along = bend - (start + end) / 2, end - start
    length = np.sqrt((along * along).sum(axis=-1))
    is_drawn = start[..., 0] < 1
    return [
        tuple(
            f"a line from {PLACES[first]} to {PLACES[last]}{_bending(right, down, slack)}"
            for (first, last), (right, down), slack, drawn in zip(*of_family, strict=True)
            if drawn
        )
        for of_family in zip(
            stroke_ends(family, seed=seed).tolist(),
            pull.tolist(),
            (STRAIGHT * length).tolist(),
            is_drawn.tolist(),
            strict=True,
        )
    ]


def describe_marks(family: Families, *, family_size: int, seed: int) -> list[tuple[str, ...]]:
    """Describes the mark of each class of each family."""
    place, turn = mark_choices(family, family_size=family_size, seed=seed)
    down, right = np.divmod(place, len(SIDES))
    return [
        tuple(
            f"a mark {HEIGHTS[height]} {SIDES[side]}, {TURNS[way]}"
            for height, side, way in zip(*of_family, strict=True)
        )
        for of_family in zip(down.tolist(), right.tolist(), turn.tolist(), strict=True)
    ]


def _bending(right: float, down: float, slack: float) -> str:
    """Describes the direction of a bend: two sides, unless one is more than twice as far.

    Example:
        >>> _bending(-0.2, 0.15, 0.05), _bending(-0.2, 0.05, 0.05), _bending(0.0, 0.01, 0.05)
        (' bending down and left', ' bending left', '')
    """
    if right * right + down * down < slack * slack:
        return ""
    ways = []
    if 2 * abs(down) >= abs(right):
        ways.append("down" if down > 0 else "up")
    if 2 * abs(right) >= abs(down):
        ways.append("right" if right > 0 else "left")
    return f" bending {' and '.join(ways)}"


def _orders(strokes: int) -> list[tuple[int, ...]]:
    """Returns the orders of all strokes, and of all but one."""
    return [*permutations(range(strokes)), *permutations(range(strokes), strokes - 1)]


def _sentence(lines: list[str], mark: str) -> str:
    """Joins the parts to a sentence.

    Example:
        >>> _sentence(["a line from centre to top left"], "a mark low down on the left, rising")
        'A line from centre to top left, and a mark low down on the left, rising.'
    """
    sentence = ", ".join([*lines, f"and {mark}."])
    return sentence[0].upper() + sentence[1:]
