"""Drawing of characters of any number of classes, the same on every machine.

Classes form families. The members of a family share a skeleton of three or four strokes and differ
by one small stroke, the mark. The difference is thus small, as among products, faces or buildings,
and a weak model confuses them.

Two rules make the pixels equal bit for bit on every machine:

- random numbers are hashes of their purpose (`random_bits`), so class 17 is the same class however
  many others are drawn;
- drawing uses only `+ - * / sqrt min max floor` on float64, elementwise, which IEEE 754 defines
  exactly. No sine (rotations are rational), no sum whose order a library may choose.

Coordinates are from -0.5 to 0.5 in x (right) and y (down).
"""

from enum import IntEnum

import numpy as np
from jaxtyping import Float64, Int64, UInt8, UInt64

NODES = np.array([(x, y) for y in (-0.3, 0.0, 0.3) for x in (-0.3, 0.0, 0.3)])
STROKES = 4  # maximal number in a skeleton
PIECES = 3  # number of straight lines that approximate a stroke
STROKE_WIDTH = 0.07

LONG_MARK, SHORT_MARK = 0.3, 0.04  # at crowding 0 and 1
MARK_STEPS = (-0.32, -0.24, -0.16, -0.08, 0.0, 0.08, 0.16, 0.24, 0.32)
MARK_PLACES = np.array([(x, y) for y in MARK_STEPS for x in MARK_STEPS])
DIAGONAL = 0.7071067811865476
DIRECTIONS = np.array([(1.0, 0.0), (DIAGONAL, DIAGONAL), (0.0, 1.0), (-DIAGONAL, DIAGONAL)])
MARK_GAP = 0.09  # distance of marks from the skeleton
MARKS_APART = 0.15  # distance of the marks of a family

Families = Int64[np.ndarray, " families"]
Numbers = Int64[np.ndarray, " images"]
Key = int | Int64[np.ndarray, "..."]
Strokes = Float64[np.ndarray, "images stroke 3 2"]
Drawings = UInt8[np.ndarray, "images side side"]

CHUNK = 2**15  # pixels drawn at once; their distances fit into a processor's cache


class Purpose(IntEnum):
    """Purpose of a random number, the second part of its key."""

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


def random_bits(*key: Key) -> UInt64[np.ndarray, "..."]:
    """Returns 64 random bits for each key, whose parts are broadcast together.

    Every part is mixed in by one step of SplitMix64 (Steele, Lea and Flood, Fast Splittable
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


def uniform(*key: Key) -> Float64[np.ndarray, "..."]:
    """Returns a random number in [-1, 1) for each key."""
    return (random_bits(*key) >> np.uint64(11)).astype(np.float64) / 2.0**52 - 1.0


def choice(count: Key, *key: Key) -> Int64[np.ndarray, "..."]:
    """Returns a random whole number below `count` for each key."""
    return (random_bits(*key) % np.asarray(count).astype(np.uint64)).astype(np.int64)


# The look of a class. A stroke is a quadratic curve: start, bend, end, each as x and y.


def skeletons(family: Families, *, seed: int) -> Float64[np.ndarray, "families stroke 3 2"]:
    """Returns the skeleton of each family: a tree of curves over a grid of nodes.

    Each stroke starts at a node of an earlier one and ends at a new one. In half of the families
    the last stroke lies outside the paper.
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


def stroke_ends(family: Families, *, seed: int) -> Int64[np.ndarray, "families stroke 2"]:
    """Returns the nodes where each stroke of a skeleton starts and ends, by number."""
    key, stroke = family[:, None], np.arange(STROKES)
    order = random_bits(seed, Purpose.NODE_ORDER, key, np.arange(len(NODES)))
    order = order.argsort(axis=1, kind="stable")
    touched = choice(stroke + 1, seed, Purpose.STROKE_START, key, stroke)
    start = order[np.arange(len(family))[:, None], touched]
    return np.stack([start, order[:, 1 : STROKES + 1]], axis=-1)


def marks(
    family: Families, *, family_size: int, length: float, seed: int
) -> Float64[np.ndarray, "families member 3 2"]:
    """Returns the mark of each member of a family."""
    place, turn = mark_choices(family, family_size=family_size, seed=seed)
    center, half = MARK_PLACES[place], DIRECTIONS[turn] * (length / 2)
    return np.stack([center - half, center, center + half], axis=2)


def mark_choices(
    family: Families, *, family_size: int, seed: int
) -> tuple[Int64[np.ndarray, "families member"], Int64[np.ndarray, "families member"]]:
    """Returns the index of each member's mark in `MARK_PLACES` and in `DIRECTIONS`.

    One member after the other takes the place with the lowest score, which is random plus a penalty
    for places on the skeleton, and a larger one for places near a mark that is taken.
    """
    x, y = MARK_PLACES.T
    gap = np.sqrt(_nearest(x, y, flatten(skeletons(family, seed=seed))[:, :, None]))
    apart_x, apart_y = x[:, None] - x, y[:, None] - y
    is_close = apart_x * apart_x + apart_y * apart_y < MARKS_APART * MARKS_APART

    score = uniform(seed, Purpose.MARK_PLACE, family[:, None], np.arange(len(MARK_PLACES)))
    score = score + 1e3 * np.maximum(MARK_GAP - gap, 0.0)
    taken = []
    for _ in range(family_size):
        taken.append(score.argmin(axis=1))
        score = score + 1e3 * is_close[taken[-1]]
    turn = choice(len(DIRECTIONS), seed, Purpose.MARK_TURN, family[:, None], np.arange(family_size))
    return np.stack(taken, axis=1), turn


# The look of an image: each has another handwriting.


def draw(
    classes: Numbers,
    number: Numbers,
    *,
    family_size: int,
    crowding: float | int,
    variation: float | int,
    side: int,
    seed: int,
) -> Drawings:
    """Draws images by original class and number in the class; other arguments as in `glyphs`."""
    families, family = np.unique(classes // family_size, return_inverse=True)
    length = (1 - crowding) * LONG_MARK + crowding * SHORT_MARK
    shared = skeletons(families, seed=seed)
    own = marks(families, family_size=family_size, length=length, seed=seed)[:, :, None]
    member = classes % family_size

    # Draw in chunks of images.
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
    strokes: Strokes, classes: Numbers, number: Numbers, *, variation: float | int, seed: int
) -> Strokes:
    """Adds noise to the strokes, then stretches, slants, rotates and shifts them as a whole."""
    each = np.ogrid[: strokes.shape[1], :3, :2]
    hand = (classes[:, None, None, None], number[:, None, None, None])
    unsteady = strokes + 0.03 * variation * uniform(seed, Purpose.JITTER, *hand, *each)

    width, height, slant, turn, right, down = (
        variation * uniform(seed, Purpose.HAND, classes, number, index)[:, None, None]
        for index in range(6)
    )
    y = (1 + 0.15 * height) * unsteady[..., 1]
    x = (1 + 0.15 * width) * unsteady[..., 0] + 0.2 * slant * y
    t = 0.1 * turn  # tangent of half the angle; gives sine and cosine by division alone
    cosine, sine = (1 - t * t) / (1 + t * t), 2 * t / (1 + t * t)
    return np.stack(
        [cosine * x - sine * y + 0.06 * right, sine * x + cosine * y + 0.06 * down], axis=-1
    )


def ink(strokes: Strokes, width: Float64[np.ndarray, " images"], side: int) -> Drawings:
    """Draws strokes of a width: full ink inside, fading over one pixel at the edge."""
    pixel = (np.arange(side) + 0.5) / side - 0.5
    distance = np.sqrt(_nearest(pixel, pixel[:, None], flatten(strokes)[:, :, None, None]))
    covered = (width[:, None, None] / 2 - distance) * side + 0.5
    covered = np.minimum(np.maximum(covered, 0.0), 1.0)
    return np.asarray(np.floor(covered * 255 + 0.5), dtype=np.uint8)


def flatten(strokes: Float64[np.ndarray, "n stroke 3 2"]) -> Float64[np.ndarray, "n line 4"]:
    """Approximates curves by straight lines: the x and y of the start, then of the end."""
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
    """Returns the squared distance of each point to the nearest of the lines (axis 1)."""
    nearest = np.full(1, np.inf)
    for index in range(lines.shape[1]):
        start_x, start_y, end_x, end_y = np.moveaxis(lines[:, index], -1, 0)
        along_x, along_y = end_x - start_x, end_y - start_y
        square = along_x * along_x + along_y * along_y
        to_x, to_y = x - start_x, y - start_y
        share = to_x * (along_x / square) + to_y * (along_y / square)
        share = np.minimum(np.maximum(share, 0.0), 1.0)  # position of the nearest point on the line
        off_x, off_y = to_x - share * along_x, to_y - share * along_y
        nearest = np.minimum(nearest, off_x * off_x + off_y * off_y)
    return nearest
