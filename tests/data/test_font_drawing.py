import hashlib
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont

from nobackfill.data.font_drawing import (
    EM,
    INK,
    Drawings,
    Face,
    draw_face,
    draw_faces,
    find_fonts,
    load_drawings,
)
from nobackfill.errors import DataError

FONTS = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
SANS, SERIF = FONTS / "DejaVuSans.ttf", FONTS / "DejaVuSerif.ttf"
LETTERS = [ord(letter) for letter in "ABCabc"]


@pytest.fixture(scope="module")
def drawings():
    faces = [(Face("DejaVuSerif.ttf", 0, "serif", True), SERIF), (Face("DejaVuSans.ttf"), SANS)]
    return draw_faces(faces, [*LETTERS, ord(" ")], side=24)


def large_and_averaged(path, letter, side, factor=8):
    """Ink of a letter drawn 8 times as large, in the middle, and averaged."""
    font = ImageFont.truetype(str(path), round(EM * side) * factor)
    large = Image.new("L", (side * factor, side * factor))
    left, top, right, bottom = font.getbbox(letter)
    place = (side * factor - right - left) // 2, (side * factor - bottom - top) // 2
    ImageDraw.Draw(large).text(place, letter, fill=255, font=font)
    blocks = np.asarray(large, dtype=float).reshape(side, factor, side, factor)
    return blocks.mean(axis=(1, 3)) >= INK


@pytest.mark.parametrize("letter", "Agx")
def test_a_drawing_has_the_ink_of_its_letter_in_the_middle(letter):
    _, bits, _ = draw_face(SANS, 0, [ord(letter)], side=40)
    image = np.unpackbits(bits[0], axis=1).astype(bool)
    expected = large_and_averaged(SANS, letter, 40)
    assert (image & expected).sum() > 0.7 * (image | expected).sum()
    ink = np.argwhere(image)
    middle = (ink.min(axis=0) + ink.max(axis=0) + 1) / 2
    assert abs(middle - 20).max() <= 1


def test_empty_drawings_and_the_sign_for_missing_characters_are_left_out():
    han = [0x4E00, 0x4E01, 0x9FA5]  # DejaVu has none of them: one sign stands for all
    rows, bits, digest = draw_face(SANS, 0, [ord("A"), ord(" "), *han, ord("B")], side=24)
    assert rows.tolist() == [0, 5]
    assert bits.shape == (2, 24, 3)
    assert digest == hashlib.sha256(SANS.read_bytes()).hexdigest()


def test_drawings_are_sorted_and_equal_each_time(drawings):
    again = draw_faces(
        [(Face("DejaVuSerif.ttf", 0, "serif", True), SERIF), (Face("DejaVuSans.ttf"), SANS)],
        [*LETTERS, ord(" ")],
        side=24,
    )
    assert drawings.characters.tolist() == [code for code in LETTERS for _ in range(2)]
    assert drawings.faces.tolist() == [0, 1] * len(LETTERS)
    assert np.array_equal(drawings.bits, again.bits)
    assert drawings.digest == again.digest


def test_a_file_of_drawings_keeps_everything(drawings, tmp_path):
    drawings.save(tmp_path / "letters.npz")
    same = load_drawings(tmp_path / "letters.npz")
    assert np.array_equal(same.bits, drawings.bits)
    assert np.array_equal(same.characters, drawings.characters)
    assert np.array_equal(same.faces, drawings.faces)
    assert same.drawn_by == drawings.drawn_by
    assert {face.sha256 for face in same.drawn_by} == {
        hashlib.sha256(path.read_bytes()).hexdigest() for path in (SANS, SERIF)
    }


@pytest.mark.parametrize("fault", ["cut", "another", "short"])
def test_a_damaged_file_says_to_remove_it(drawings, tmp_path, fault):
    path = tmp_path / "letters.npz"
    drawings.save(path)
    if fault == "cut":
        path.write_bytes(path.read_bytes()[:-200])
    elif fault == "another":
        np.savez(path, vector=np.eye(2))
    else:
        with np.load(path) as file:
            contents = {**file, "bits": file["bits"][:-1]}
        np.savez(path, **contents)
    with pytest.raises(DataError, match="Remove it, and it is drawn again"):
        load_drawings(path)


def test_the_digest_depends_on_the_images(drawings):
    changed = drawings.bits.copy()
    changed[0, 0, 0] ^= 1
    other = Drawings(changed, drawings.characters, drawings.faces, drawings.drawn_by)
    assert other.digest != drawings.digest


def test_a_file_that_is_no_font_is_named(tmp_path):
    (tmp_path / "x.ttf").write_bytes(b"no font")
    with pytest.raises(DataError, match=r"x\.ttf.*Install the font again"):
        draw_face(tmp_path / "x.ttf", 0, [65], side=24)


def test_fonts_are_found_in_subfolders_and_the_first_folder_wins(tmp_path):
    for folder in ("one/deep", "two"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "a.ttf").touch()
    (tmp_path / "two" / "b.ttf").touch()
    paths = find_fonts(["a.ttf", "b.ttf", "c.ttf"], [tmp_path / "one", tmp_path / "two"])
    assert paths == {
        "a.ttf": tmp_path / "one" / "deep" / "a.ttf",
        "b.ttf": tmp_path / "two" / "b.ttf",
    }
