"""Collections of characters drawn by font files: a class per character, an image per typeface.

Queries and gallery of searched characters come from different families, since weights and regional
forms of one family are near-duplicates. `han.py` draws Han characters by free fonts.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64, UInt8
from torch import Tensor

from nobackfill.data.collection import Collection, Pixels, Rows
from nobackfill.data.distortions import distort
from nobackfill.data.font_drawing import (
    Drawings,
    Face,
    draw_faces,
    find_fonts,
    load_drawings,
    system_folders,
)
from nobackfill.errors import ConfigError, DataError

PARTS = ("test", "validation")  # parts of the characters that are searched, not trained on
PART_SEED = 0  # of the division into parts: the same for all seeds of a collection
UNPACKED = torch.tensor([[byte >> bit & 1 for bit in range(7, -1, -1)] for byte in range(256)])


def fonts(
    *,
    files: Sequence[str] = (),
    query_files: Sequence[str] = (),
    characters: Sequence[str] = ("0041-005A", "0061-007A"),
    path: str = "",
    folder: str = "",
    counts: Sequence[int] = (10, 30),
    images_per_class: int = 0,
    validation_classes: int = 5,
    test_classes: int = 10,
    searched: str = "test",
    distortion: float | int = 1.0,
    side: int = 40,
    seed: int = 0,
) -> Collection:
    """Draws any characters by any font files.

    Args:
        files: Names of font files whose drawings are the gallery; "NAME.ttc#2" is the third face.
        query_files: Names of font files of other designs, whose drawings are the queries.
        characters: Ranges of code points, such as "4E00-9FA5".
        path: File that keeps the drawings, in the user's cache if it is relative; by default
            nothing is kept.
        folder: Folder of the font files; by default those of the system.
        counts: Number of training characters that each step of the upgrade knows.
        images_per_class: Largest number of drawings of a training character; 0 for all.
        validation_classes: Number of characters on which options may be chosen.
        test_classes: Number of characters that tables report.
        searched: Characters in queries and gallery: "test" or "validation".
        distortion: Strength of the distortions, of training drawings anew in each epoch, of
            searched ones once; 0 for none.
        side: Height and width of an image in pixels, a multiple of 8.
        seed: Random seed of the training characters. Validation and test characters are the same
            for all seeds.
    """
    if not files or not query_files:
        raise ConfigError(
            "The collection `fonts` requires `files` and `query_files`, the font files of the "
            "gallery and of the queries. Name some in [data]."
        )
    faces = [face_named(name, is_query=False) for name in files]
    faces += [face_named(name, is_query=True) for name in query_files]
    return collect(
        kept_drawings(path, folder, faces, characters, side=side),
        counts=counts,
        images_per_class=images_per_class,
        parts={"test": test_classes, "validation": validation_classes},
        searched=searched,
        distortion=distortion,
        seed=seed,
    )


def face_named(name: str, *, is_query: bool) -> Face:
    """Returns the face of "FILE" or "FILE#INDEX".

    Example:
        >>> face_named("ming.ttc#2", is_query=False).index
        2
    """
    file, _, index = name.partition("#")
    if index and not index.isdecimal():
        raise ConfigError(f"`{name}` in [data] must end with the number of a face, as in #0.")
    return Face(file, int(index or 0), Path(file).stem, is_query)


def code_points(ranges: Sequence[str]) -> list[int]:
    """Returns the code points of ranges.

    Example:
        >>> code_points(["0041-0043", "4E00"])
        [65, 66, 67, 19968]
    """
    points: list[int] = []
    for text in ranges:
        first, _, last = text.partition("-")
        try:
            points += range(int(first, 16), int(last or first, 16) + 1)
        except ValueError:
            raise ConfigError(
                f"`characters` in [data] must be hexadecimal ranges such as 4E00-9FA5, "
                f"not {text!r}."
            ) from None
    return points


def kept_drawings(
    path: str, folder: str, faces: Sequence[Face], characters: Sequence[str], *, side: int
) -> Drawings:
    """Reads the drawings from their file, or draws and writes them; no path keeps nothing."""
    if side < 8 or side % 8:
        raise ConfigError(f"`side` in [data] must be a multiple of 8, not {side}.")
    file = cache_folder() / path if path else None  # an absolute path stays as it is
    if file is not None and file.exists():
        drawings = load_drawings(file)
        if drawings.side != side:
            raise DataError(
                f"{file} has drawings of {drawings.side} pixels, not {side}. Choose another `path`."
            )
        return drawings
    drawings = draw_installed(faces, code_points(characters), folder=folder, side=side)
    if file is not None:
        drawings.save(file)
    return drawings


def cache_folder() -> Path:
    """Returns the folder of drawings that are kept."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "nobackfill"


def font_folders(folder: str) -> list[Path]:
    """Returns the folder of the font files, or those of the system if none is named."""
    return [Path(folder).expanduser()] if folder else system_folders()


def draw_installed(
    faces: Sequence[Face], characters: Sequence[int], *, folder: str, side: int
) -> Drawings:
    """Draws characters by those of the faces whose files exist."""
    folders = font_folders(folder)
    paths = find_fonts([Path(face.file).name for face in faces], folders)
    present = [
        (face, paths[Path(face.file).name]) for face in faces if Path(face.file).name in paths
    ]
    roles = {face.is_query for face, _ in present}
    if roles != {True, False}:
        missing = sorted({face.package or face.file for face in faces if face.file not in paths})
        raise DataError(
            f"Queries and gallery each require a font, but of {len(faces)} faces {len(present)} "
            f"have a file below {', '.join(map(str, folders))}. Install {' '.join(missing)}, or "
            f"name the folder of the files (`folder` in [data])."
        )
    return draw_faces(present, characters, side=side)


def collect(
    drawings: Drawings,
    *,
    counts: Sequence[int],
    images_per_class: int,
    parts: dict[str, int],
    searched: str,
    distortion: float | int,
    seed: int,
) -> Collection:
    """Divides drawn characters into training classes and searched ones.

    Searched characters are those that have a query and a gallery drawing.
    """
    check_options(counts, images_per_class, parts, searched)
    is_query_face = np.array([face.is_query for face in drawings.drawn_by])
    characters, number = np.unique(drawings.characters, return_inverse=True)
    is_query = is_query_face[drawings.faces]
    searchable = np.bincount(number[is_query], minlength=len(characters)) > 0
    searchable &= np.bincount(number[~is_query], minlength=len(characters)) > 0
    trained, others = divide_characters(
        searchable, counts=counts, parts=parts, searched=searched, seed=seed
    )

    # Number the classes: training classes by the step that adds them, then searched ones.
    label = np.full(len(characters), -1, dtype=np.int64)
    label[trained] = np.arange(len(trained))
    label[others] = len(trained) + np.arange(len(others))
    labels = label[number]
    is_searched = labels >= len(trained)
    is_used = (labels >= 0) & (is_searched | is_first(number, images_per_class, seed))

    # Sort the drawings by label, so that training drawings come first.
    rows = np.flatnonzero(is_used)
    rows = rows[np.argsort(labels[rows], kind="stable")]
    names = np.array([face.name for face in drawings.drawn_by])
    families = np.array([face.family for face in drawings.drawn_by])
    faces, codes = drawings.faces[rows], drawings.characters[rows]
    bits = torch.from_numpy(drawings.bits[rows]).unsqueeze(1)
    first_searched = int((~is_searched[rows]).sum())
    return Collection(
        ids=[f"U+{code:04X}-{name}" for code, name in zip(codes, names[faces], strict=True)],
        labels=torch.from_numpy(labels[rows]),
        columns={
            "split": np.where(is_searched[rows], "validation", "train"),
            "is_query": is_searched[rows] & is_query[rows],
            "is_gallery": is_searched[rows] & ~is_query[rows],
            "text": np.array([chr(code) for code in codes]),
            "family": families[faces],
        },
        class_counts=tuple(counts),
        load=DrawnPixels(bits, distorted_once(bits[first_searched:], float(distortion))),
        prepare=lambda pixels: as_floats(pixels, drawings.side),
        augment=partial(distort, strength=float(distortion)),
        preprocessing=f"characters of {drawings.side} px, drawings {drawings.digest}",
    )


def divide_characters(
    searchable: Bool[np.ndarray, " characters"],
    *,
    counts: Sequence[int],
    parts: dict[str, int],
    searched: str,
    seed: int,
) -> tuple[Int64[np.ndarray, " trained"], Int64[np.ndarray, " searched"]]:
    """Draws the characters to train on and those to search, as positions.

    Validation and test characters are the same for all seeds.
    """
    order = shuffled(np.flatnonzero(searchable), PART_SEED)
    part_of = np.zeros(len(searchable), dtype=np.int64)  # 0 for training
    start = 0
    for place, name in enumerate(PARTS, start=1):
        part_of[order[start : start + parts[name]]] = place
        start += parts[name]
    trained = shuffled(np.flatnonzero(part_of == 0), seed + 1)[: counts[-1]]
    if start > len(order) or len(trained) < counts[-1]:
        raise DataError(
            f"There are drawings of {len(searchable):,} characters, too few for {counts[-1]:,} "
            f"training characters and {start:,} others. Lower `counts`, or install more fonts "
            f"(`nobackfill datasets check han`)."
        )
    return trained, np.flatnonzero(part_of == PARTS.index(searched) + 1)


@dataclass(frozen=True, eq=False)
class DrawnPixels:
    """Loader of drawings.

    Attributes:
        bits: All drawings, 8 pixels per byte; those to train on come first.
        searched: Searched drawings, distorted once, one pixel per byte.
    """

    bits: UInt8[Tensor, "drawings 1 side _"]
    searched: UInt8[Tensor, "searched 1 side side"]

    def __call__(self, rows: Rows, generator: torch.Generator | None) -> Pixels:
        """Returns the bits of training drawings; rows of searched ones have one pixel per byte."""
        first_searched = len(self.bits) - len(self.searched)
        is_searched = rows >= first_searched
        if not is_searched.any():
            return self.bits[rows]
        if is_searched.all():
            return self.searched[rows - first_searched]
        pixels = unpack(self.bits[rows]).mul(255).to(torch.uint8)
        pixels[is_searched] = self.searched[rows[is_searched] - first_searched]
        return pixels


def as_floats(pixels: Pixels, side: int) -> Float[Tensor, "batch 1 side side"]:
    """Returns images as floats, 1 for ink, from 8 pixels or one pixel per byte."""
    return pixels.float() / 255 if pixels.shape[-1] == side else unpack(pixels)


def distorted_once(
    bits: UInt8[Tensor, "drawings 1 side _"], strength: float
) -> UInt8[Tensor, "drawings 1 side side"]:
    """Distorts each drawing once, in blocks, and returns one pixel per byte."""
    generator = torch.Generator().manual_seed(PART_SEED)
    blocks = [
        distort(unpack(block), generator, strength) if strength else unpack(block)
        for block in bits.split(2048)
    ]
    return torch.cat([block.clamp_(0, 1).mul_(255).to(torch.uint8) for block in blocks])


def unpack(pixels: Pixels) -> Float[Tensor, "batch 1 height columns"]:
    """Unpacks 8 pixels per byte to floats, 1 for ink.

    Example:
        >>> unpack(torch.tensor([[[[0b10000001]]]], dtype=torch.uint8))
        tensor([[[[1., 0., 0., 0., 0., 0., 0., 1.]]]])
    """
    table = UNPACKED.to(pixels.device, torch.float32, non_blocking=True)
    return table[pixels.int()].flatten(3)


def is_first(
    number: Int64[np.ndarray, " drawings"], limit: int, seed: int
) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Marks at most `limit` random drawings of each character; 0 marks all."""
    if not limit:
        return np.ones(len(number), dtype=bool)
    order = shuffled(np.arange(len(number)), seed + 2)
    order = order[np.argsort(number[order], kind="stable")]
    ordered = number[order]
    place = np.arange(len(number)) - np.searchsorted(ordered, ordered)
    marks = np.zeros(len(number), dtype=bool)
    marks[order[place < limit]] = True
    return marks


def shuffled(values: Int64[np.ndarray, " values"], seed: int) -> Int64[np.ndarray, " values"]:
    """Returns values in a random order that does not change with the version of NumPy."""
    bits = np.random.Philox(key=seed).random_raw(len(values))
    return values[np.argsort(bits, kind="stable")]


def check_options(
    counts: Sequence[int], images_per_class: int, parts: dict[str, int], searched: str
) -> None:
    """Raises if an option of the collection is out of range."""
    if not counts or counts[0] < 2 or any(a >= b for a, b in zip(counts, counts[1:], strict=False)):
        raise ConfigError(
            f"`counts` in [data] must ascend from at least 2, the oldest model first, not "
            f"{list(counts)}."
        )
    if searched not in PARTS:
        raise ConfigError(f'`searched` in [data] must be "test" or "validation", not {searched!r}.')
    if min(parts.values()) < 1 or images_per_class < 0:
        raise ConfigError(
            "`validation_classes` and `test_classes` in [data] must be at least 1, and "
            "`images_per_class` 0 or more."
        )
