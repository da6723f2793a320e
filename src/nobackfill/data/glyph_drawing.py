"""Drawn characters: a built-in collection with any number of classes, the same on every machine.

Classes come in families of look-alikes. A family has a skeleton of three or four strokes; its
members share the skeleton and differ by one small stroke, the mark. What tells siblings apart is
thus small, as it is among products, faces or buildings, and a weak model confuses them.

Two rules make the pixels equal bit for bit wherever they are drawn:

- chance is a hash of what it decides (`random_bits`), so class 17 is the same class however many
  others are drawn;
- drawing uses only `+ - * / sqrt min max floor` on float64, elementwise, which IEEE 754 defines
  exactly. No sine (turns are rational), no sum whose order a library may choose.

Coordinates are those of a sheet of paper from -0.5 to 0.5 in x (right) and y (down).
"""

from enum import IntEnum

import numpy as np
from jaxtyping import Float64, Int64, UInt8, UInt64

NODES = np.array([(x, y) for y in (-0.3, 0.0, 0.3) for x in (-0.3, 0.0, 0.3)])
STROKES = 4  # of a skeleton, at most
PIECES = 3  # straight lines that draw one curved stroke
STROKE_WIDTH = 0.07

LONG_MARK, SHORT_MARK = 0.3, 0.04  # at crowding 0 and 1
MARK_STEPS = (-0.32, -0.24, -0.16, -0.08, 0.0, 0.08, 0.16, 0.24, 0.32)
MARK_PLACES = np.array([(x, y) for y in MARK_STEPS for x in MARK_STEPS])
DIAGONAL = 0.7071067811865476
DIRECTIONS = np.array([(1.0, 0.0), (DIAGONAL, DIAGONAL), (0.0, 1.0), (-DIAGONAL, DIAGONAL)])
MARK_GAP = 0.09  # from the skeleton: a mark stands beside it, not on it
MARKS_APART = 0.15  # siblings' marks from each other

CHUNK = 2**15  # pixels drawn at once: their distances fit a processor's cache


# Chance: a hash of what it decides.


class Purpose(IntEnum):
    """What a random number is for, as part of its key."""

    CLASS_ORDER = 0
    NODE_PLACE = 1
    NODE_ORDER = 2
    STROKE_START = 3
    STROKE_BEND = 4
    STROKE_COUNT = 5
    MARK_PLACE = 6
    MARK_TURN = 7
    HAND = 8
    JITTER = 9
    CAPTION = 10


def random_bits(*key: int | Int64[np.ndarray, "..."]) -> UInt64[np.ndarray, "..."]:
    """64 random bits for each key, whose parts are broadcast together.

    Every part is stirred in by one step of SplitMix64 (Steele, Lea and Flood, Fast Splittable
    Pseudorandom Number Generators, OOPSLA 2014).

    Example:
        >>> hex(random_bits(0)[0])
        '0xe220a8397b1dcdaf'
    """
    state = np.zeros(1, dtype=np.uint64)
    for part in key:
        state = state + np.asarray(part).astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
        state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        state = state ^ (state >> np.uint64(31))
    return state


def uniform(*key: int | Int64[np.ndarray, "..."]) -> Float64[np.ndarray, "..."]:
    """A random number in [-1, 1) for each key."""
    return (random_bits(*key) >> np.uint64(11)).astype(np.float64) / 2.0**52 - 1.0


def choice(
    count: int | Int64[np.ndarray, "..."], *key: int | Int64[np.ndarray, "..."]
) -> Int64[np.ndarray, "..."]:
    """A random whole number below `count` for each key."""
    return (random_bits(*key) % np.asarray(count).astype(np.uint64)).astype(np.int64)


# What a class looks like. A stroke is a quadratic curve: start, bend, end, each as x and y.


def skeletons(
    family: Int64[np.ndarray, " families"], *, seed: int
) -> Float64[np.ndarray, "families stroke 3 2"]:
    """The strokes that the members of each family share: a tree of curves over a grid of nodes.

    Each stroke starts at a node that an earlier one has touched and ends at a fresh one. In half
    of the families the last stroke lies beside the paper.
    """
    key, stroke = family[:, None], np.arange(STROKES)
    shift = uniform(seed, Purpose.NODE_PLACE, key[:, None], *np.ogrid[: len(NODES), :2])
    nodes = NODES + 0.04 * shift
    ends = stroke_ends(family, seed=seed)
    start, end = np.moveaxis(nodes[np.arange(len(family))[:, None, None], ends], 2, 0)
    along = end - start
    across = np.stack([-along[..., 1], along[..., 0]], axis=-1)
    bend = 0.6 * uniform(seed, Purpose.STROKE_BEND, key, stroke)[..., None]
    curves = np.stack([start, (start + end) / 2 + bend * across, end], axis=2)
    curves[uniform(seed, Purpose.STROKE_COUNT, family) < 0, -1] += 9.0
    return curves


def stroke_ends(
    family: Int64[np.ndarray, " families"], *, seed: int
) -> Int64[np.ndarray, "families stroke 2"]:
    """The numbers of the nodes where each stroke of a skeleton starts and where it ends."""
    key, stroke = family[:, None], np.arange(STROKES)
    order = random_bits(seed, Purpose.NODE_ORDER, key, np.arange(len(NODES)))
    order = order.argsort(axis=1, kind="stable")
    touched = choice(stroke + 1, seed, Purpose.STROKE_START, key, stroke)
    start = order[np.arange(len(family))[:, None], touched]
    return np.stack([start, order[:, 1 : STROKES + 1]], axis=-1)


def marks(
    family: Int64[np.ndarray, " families"], *, family_size: int, length: float, seed: int
) -> Float64[np.ndarray, "families member 3 2"]:
    """The one small stroke that tells each member of a family from its siblings."""
    place, turn = mark_choices(family, family_size=family_size, seed=seed)
    center, half = MARK_PLACES[place], DIRECTIONS[turn] * (length / 2)
    return np.stack([center - half, center, center + half], axis=2)


def mark_choices(
    family: Int64[np.ndarray, " families"], *, family_size: int, seed: int
) -> tuple[Int64[np.ndarray, "families member"], Int64[np.ndarray, "families member"]]:
    """Where the mark of each member stands, of `MARK_PLACES`, and how, of `DIRECTIONS`.

    The members draw lots for a place in turn. Places upon the skeleton come last, and places by a
    mark already taken after those.
    """
    x, y = MARK_PLACES.T
    gap = np.sqrt(_nearest(x, y, flatten(skeletons(family, seed=seed))[:, :, None]))
    apart_x, apart_y = x[:, None] - x, y[:, None] - y
    is_close = apart_x * apart_x + apart_y * apart_y < MARKS_APART * MARKS_APART

    lot = uniform(seed, Purpose.MARK_PLACE, family[:, None], np.arange(len(MARK_PLACES)))
    lot = lot + 1e3 * np.maximum(MARK_GAP - gap, 0.0)
    taken = []
    for _ in range(family_size):
        taken.append(lot.argmin(axis=1))
        lot = lot + 1e3 * is_close[taken[-1]]
    turn = choice(len(DIRECTIONS), seed, Purpose.MARK_TURN, family[:, None], np.arange(family_size))
    return np.stack(taken, axis=1), turn


# What an image of a class looks like: each is written by another hand.


def draw(
    classes: Int64[np.ndarray, " images"],
    number: Int64[np.ndarray, " images"],
    *,
    family_size: int,
    crowding: float | int,
    variation: float | int,
    side: int,
    seed: int,
) -> UInt8[np.ndarray, "images side side"]:
    """Images by original class and by number within the class; the knobs are those of `glyphs`."""
    families, family = np.unique(classes // family_size, return_inverse=True)
    length = (1 - crowding) * LONG_MARK + crowding * SHORT_MARK
    shared = skeletons(families, seed=seed)
    own = marks(families, family_size=family_size, length=length, seed=seed)[:, :, None]
    member = classes % family_size

    images = np.empty((len(classes), side, side), dtype=np.uint8)
    step = max(1, CHUNK // (side * side))
    for start in range(0, len(classes), step):
        part = slice(start, start + step)
        strokes = np.concatenate([shared[family[part]], own[family[part], member[part]]], axis=1)
        hand = (classes[part], number[part])
        strokes = handwritten(strokes, *hand, variation=variation, seed=seed)
        pen = uniform(seed, Purpose.HAND, *hand, 6)
        images[part] = ink(strokes, STROKE_WIDTH * (1 + 0.3 * variation * pen), side)
    return images


def handwritten(
    strokes: Float64[np.ndarray, "images stroke 3 2"],
    classes: Int64[np.ndarray, " images"],
    number: Int64[np.ndarray, " images"],
    *,
    variation: float | int,
    seed: int,
) -> Float64[np.ndarray, "images stroke 3 2"]:
    """The strokes, unsteady, then stretched, slanted, turned and shifted as a whole."""
    each = np.ogrid[: strokes.shape[1], :3, :2]
    hand = (classes[:, None, None, None], number[:, None, None, None])
    unsteady = strokes + 0.03 * variation * uniform(seed, Purpose.JITTER, *hand, *each)

    width, height, slant, turn, right, down = (
        variation * uniform(seed, Purpose.HAND, classes, number, index)[:, None, None]
        for index in range(6)
    )
    y = (1 + 0.15 * height) * unsteady[..., 1]
    x = (1 + 0.15 * width) * unsteady[..., 0] + 0.2 * slant * y
    t = 0.1 * turn  # the tangent of half the angle, which gives sine and cosine by division alone
    cosine, sine = (1 - t * t) / (1 + t * t), 2 * t / (1 + t * t)
    return np.stack(
        [cosine * x - sine * y + 0.06 * right, sine * x + cosine * y + 0.06 * down], axis=-1
    )


def ink(
    strokes: Float64[np.ndarray, "images stroke 3 2"],
    width: Float64[np.ndarray, " images"],
    side: int,
) -> UInt8[np.ndarray, "images side side"]:
    """Draws strokes of the given width: full ink within it, fading over one pixel at its edge."""
    pixel = (np.arange(side) + 0.5) / side - 0.5
    distance = np.sqrt(_nearest(pixel, pixel[:, None], flatten(strokes)[:, :, None, None]))
    covered = (width[:, None, None] / 2 - distance) * side + 0.5
    covered = np.minimum(np.maximum(covered, 0.0), 1.0)
    return np.asarray(np.floor(covered * 255 + 0.5), dtype=np.uint8)


def flatten(
    strokes: Float64[np.ndarray, "n stroke 3 2"],
) -> Float64[np.ndarray, "n line 4"]:
    """Curves as straight lines, each given by the x and y of its start and of its end."""
    u = (np.arange(PIECES + 1) / PIECES)[:, None]
    start, bend, end = (strokes[:, :, None, point] for point in range(3))
    points = (1 - u) * (1 - u) * start + 2 * u * (1 - u) * bend + u * u * end
    lines = np.concatenate([points[:, :, :-1], points[:, :, 1:]], axis=-1)
    return lines.reshape(len(strokes), -1, 4)


def _nearest(
    x: Float64[np.ndarray, "..."],
    y: Float64[np.ndarray, "..."],
    lines: Float64[np.ndarray, "n line ... 4"],
) -> Float64[np.ndarray, "n ..."]:
    """The squared distance of each point to the nearest of the lines, axis 1 of `lines`."""
    nearest = np.full(1, np.inf)
    for index in range(lines.shape[1]):
        start_x, start_y, end_x, end_y = np.moveaxis(lines[:, index], -1, 0)
        along_x, along_y = end_x - start_x, end_y - start_y
        square = along_x * along_x + along_y * along_y
        to_x, to_y = x - start_x, y - start_y
        share = to_x * (along_x / square) + to_y * (along_y / square)
        share = np.minimum(np.maximum(share, 0.0), 1.0)  # of the line, where it is nearest
        off_x, off_y = to_x - share * along_x, to_y - share * along_y
        nearest = np.minimum(nearest, off_x * off_x + off_y * off_y)
    return nearest
