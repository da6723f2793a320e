"""Drawing of characters by font files: black and white images, one per character and face.

A drawing is deterministic for given font files and a given version of FreeType. Drawings that are
empty, and drawings that a face repeats for several characters (its sign for a missing character),
are left out.
"""

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
from jaxtyping import Int32, UInt8
from PIL import Image, ImageDraw, ImageFont

from nobackfill.core.atomic_files import replacing
from nobackfill.errors import DataError

EM = 0.9  # size of the em square, as a share of the side of an image
INK = 96  # darkness, of 255, from which a pixel is ink

Bits = UInt8[np.ndarray, "drawings side columns"]  # 8 pixels per byte, the leftmost first


@dataclass(frozen=True)
class Face:
    """A typeface in a font file.

    Attributes:
        file: Name of the font file.
        index: Number of the typeface in the file.
        family: Design; weights and regional forms of one design are near-duplicates.
        is_query: Whether drawings of searched characters are queries; otherwise gallery.
        package: Debian package that contains the file.
        sha256: Hash of the file; "" before it is read.
    """

    file: str
    index: int = 0
    family: str = ""
    is_query: bool = False
    package: str = ""
    sha256: str = ""

    @property
    def name(self) -> str:
        """Name of the face in ids: the file without suffix, and the index if it is not 0."""
        stem = Path(self.file).stem
        return f"{stem}-{self.index}" if self.index else stem


@dataclass(frozen=True, eq=False)
class Drawings:
    """Drawn characters, sorted by character and then by face.

    Attributes:
        bits: Images, 8 pixels per byte; 1 is ink.
        characters: Code point of each drawing.
        faces: Face of each drawing, a row of `drawn_by`.
        drawn_by: Faces.
    """

    bits: Bits
    characters: Int32[np.ndarray, " drawings"]
    faces: Int32[np.ndarray, " drawings"]
    drawn_by: tuple[Face, ...]

    @property
    def side(self) -> int:
        """Height and width of an image in pixels."""
        return int(self.bits.shape[1])

    @property
    def digest(self) -> str:
        """Hash of the images, short."""
        return hashlib.sha256(self.bits.tobytes()).hexdigest()[:12]

    def save(self, path: Path) -> None:
        """Writes a compressed .npz file, atomically."""
        faces = json.dumps([asdict(face) for face in self.drawn_by])
        with replacing(path) as unfinished, unfinished.open("wb") as file:
            np.savez_compressed(
                file,
                bits=self.bits,
                characters=self.characters,
                faces=self.faces,
                drawn_by=np.array(faces),
            )


def load_drawings(path: Path) -> Drawings:
    """Reads a file that `Drawings.save` wrote."""
    try:
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            faces = tuple(Face(**face) for face in json.loads(str(file["drawn_by"])))
            bits, characters, drawn = (file[name] for name in ("bits", "characters", "faces"))
    except (OSError, ValueError, KeyError, TypeError, EOFError, BadZipFile) as error:
        raise DataError(
            f"{path} is not a file of drawings ({error}). Remove it, and it is drawn again."
        ) from error
    if not len(bits) == len(characters) == len(drawn):
        raise DataError(f"{path} is incomplete. Remove it, and it is drawn again.")
    return Drawings(bits, characters, drawn, faces)


def draw_faces(
    faces: Sequence[tuple[Face, Path]], characters: Sequence[int], *, side: int = 40
) -> Drawings:
    """Draws all characters by all faces.

    Args:
        faces: Faces and the paths of their files.
        characters: Code points.
        side: Height and width of an image in pixels, a multiple of 8.
    """
    results = [draw_face(path, face.index, characters, side=side) for face, path in faces]
    numbers = np.concatenate([rows for rows, _, _ in results])
    bits = np.concatenate([images for _, images, _ in results])
    drawn = np.repeat(np.arange(len(faces)), [len(rows) for rows, _, _ in results])
    order = np.lexsort((drawn, numbers))
    return Drawings(
        bits[order],
        np.asarray(characters, dtype=np.int32)[numbers[order]],
        drawn[order].astype(np.int32),
        tuple(
            replace(face, sha256=digest)
            for (face, _), (_, _, digest) in zip(faces, results, strict=True)
        ),
    )


def draw_face(
    path: Path, index: int, characters: Sequence[int], *, side: int
) -> tuple[Int32[np.ndarray, " drawings"], Bits, str]:
    """Draws the characters of one face.

    Returns:
        Positions of the characters that the face has, their drawings, and the hash of the file.
    """
    contents = path.read_bytes()
    try:
        font = ImageFont.truetype(str(path), round(EM * side), index=index)
        images = np.stack([draw_character(font, code, side) for code in characters])
    except OSError as error:
        raise DataError(
            f"Cannot draw by the face {index} of {path}: {error}. Install the font again."
        ) from error
    bits = np.packbits(images >= INK, axis=2)
    # Leave out empty drawings and those of several characters.
    flat = bits.reshape(len(bits), -1)
    _, first, counts = np.unique(flat, axis=0, return_index=True, return_counts=True)
    is_kept = np.zeros(len(bits), dtype=bool)
    is_kept[first[counts == 1]] = True
    is_kept &= flat.any(axis=1)
    rows = np.flatnonzero(is_kept).astype(np.int32)
    return rows, bits[rows], hashlib.sha256(contents).hexdigest()


def draw_character(
    font: ImageFont.FreeTypeFont, code: int, side: int
) -> UInt8[np.ndarray, "side side"]:
    """Draws a character in the middle of an image; what does not fit is cut off."""
    image = Image.new("L", (side, side))
    left, top, right, bottom = font.getbbox(chr(code))
    corner = (side - right - left) / 2, (side - bottom - top) / 2
    ImageDraw.Draw(image).text(corner, chr(code), fill=255, font=font)
    return np.asarray(image)


def find_fonts(names: Iterable[str], folders: Sequence[Path]) -> dict[str, Path]:
    """Finds font files by name in folders and their subfolders; the first match counts."""
    names = set(names)
    paths: dict[str, Path] = {}
    for folder in folders:
        for path in sorted(folder.rglob("*")) if folder.is_dir() else ():
            if path.name in names and path.name not in paths and path.is_file():
                paths[path.name] = path
    return paths


def system_folders() -> list[Path]:
    """Folders in which a system has fonts."""
    return [
        Path("/usr/share/fonts"),
        Path("/usr/local/share/fonts"),
        Path("~/.local/share/fonts").expanduser(),
        Path("~/.fonts").expanduser(),
        Path("/Library/Fonts"),
    ]
