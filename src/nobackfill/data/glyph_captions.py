"""Captions of the drawn characters: what a class looks like, in plain words.

The strokes of the skeleton are told by where they go between nine places, three by three, and the
mark by where it stands. The mark alone tells siblings apart, so that every caption has it.
"""

from itertools import permutations

import numpy as np
from jaxtyping import Int64

from nobackfill.data.glyph_drawing import (
    Purpose,
    mark_choices,
    random_bits,
    skeletons,
    stroke_ends,
)
from nobackfill.errors import ConfigError

MOST_CAPTIONS = 12  # of an image: the orders of three strokes, and those of two of the three
STRAIGHT = 0.15  # of its length, by which a stroke may be pulled to the side

PLACES = (
    "top left", "top centre", "top right",
    "centre left", "centre", "centre right",
    "bottom left", "bottom centre", "bottom right",
)  # fmt: skip

# Of `MARK_STEPS`, from left to right and from top to bottom: in twos, as siblings are two apart.
SIDES = (
    "on the far left", "on the far left", "on the left", "on the left", "in the middle",
    "on the right", "on the right", "on the far right", "on the far right",
)  # fmt: skip
HEIGHTS = (
    "at the top", "at the top", "high up", "high up", "halfway up",
    "low down", "low down", "at the bottom", "at the bottom",
)  # fmt: skip
TURNS = ("level", "falling", "upright", "rising")  # of `DIRECTIONS`, as one reads


def describe(
    classes: Int64[np.ndarray, " images"],
    number: Int64[np.ndarray, " images"],
    *,
    captions: int,
    family_size: int,
    seed: int,
) -> list[tuple[str, ...]]:
    r"""Writes so many captions of each image, no two of them the same.

    The captions of a class tell the same strokes in other orders, about half of them without one,
    and all tell the mark.

    Args:
        classes: Original class of each image.
        number: Of the image within its class.
        captions: How many for each image.
        family_size: How many classes look alike.
        seed: With which the characters are drawn.

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
    if not 1 <= captions <= MOST_CAPTIONS:
        raise ConfigError(
            f"`captions` must lie between 1 and {MOST_CAPTIONS}, but it is {captions}. Choose a "
            f"value in between, or leave it out."
        )
    families, family = np.unique(classes // family_size, return_inverse=True)
    lines = tell_strokes(families, seed=seed)
    marks = tell_marks(families, family_size=family_size, seed=seed)
    orders = [_orders(len(told)) for told in lines]
    most = np.arange(max(map(len, orders)))
    lots = random_bits(seed, Purpose.CAPTION, classes[:, None], number[:, None], most)
    written = []
    for row, member, lot in zip(family, classes % family_size, lots, strict=True):
        drawn = lot[: len(orders[row])].argsort(kind="stable")[:captions]
        chosen = [[lines[row][stroke] for stroke in orders[row][index]] for index in drawn]
        written.append(tuple(_sentence(told, marks[row][member]) for told in chosen))
    return written


def tell_strokes(family: Int64[np.ndarray, " families"], *, seed: int) -> list[tuple[str, ...]]:
    """The strokes of each family's skeleton in words, of those on the paper."""
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


def tell_marks(
    family: Int64[np.ndarray, " families"], *, family_size: int, seed: int
) -> list[tuple[str, ...]]:
    """The marks of each family's members in words."""
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
    """Where a stroke is pulled on the paper: to two sides, where to neither twice as far.

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
    """Every way to tell all strokes but at most one."""
    every = range(strokes)
    return [*permutations(every), *permutations(every, strokes - 1)]


def _sentence(lines: list[str], mark: str) -> str:
    """One sentence of several parts.

    Example:
        >>> _sentence(["a line from centre to top left"], "a mark low down on the left, rising")
        'A line from centre to top left, and a mark low down on the left, rising.'
    """
    said = ", ".join([*lines, f"and {mark}."])
    return said[0].upper() + said[1:]
