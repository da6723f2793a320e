"""How single items are shown: small pictures that stand in the page itself, texts, or ids."""

import base64
import io

import numpy as np
import pytest
from PIL import Image

from nobackfill.report import Page, Picture, Section, Table, render_html
from nobackfill.report.looks import LONGEST, SIDE, as_cell, nothing, shorten, thumbnail


def decoded(uri):
    head, _, data = uri.partition(",")
    assert head == "data:image/jpeg;base64"
    image = Image.open(io.BytesIO(base64.b64decode(data, validate=True)))
    image.load()
    return image


def noise(size, mode):
    bands = {"L": 1, "RGB": 3, "RGBA": 4}[mode]
    shape = (size[1], size[0], bands) if bands > 1 else (size[1], size[0])
    pixels = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    return Image.fromarray(pixels, mode=None)


@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA"])
@pytest.mark.parametrize(
    ("size", "small"),
    [((640, 480), (96, 72)), ((50, 400), (12, 96)), ((20, 30), (20, 30)), ((96, 96), (96, 96))],
)
def test_a_picture_becomes_a_small_jpeg(mode, size, small):
    uri = thumbnail(noise(size, mode))
    image = decoded(uri)
    assert (image.format, image.mode, image.size) == ("JPEG", "RGB", small)
    assert len(uri) < 15_000  # of pure noise, which nothing makes smaller


@pytest.mark.parametrize("mode", ["1", "P", "CMYK", "LA"])
def test_pictures_of_any_kind_are_shown(mode):
    assert decoded(thumbnail(Image.new(mode, (200, 100)))).size == (96, 48)


def test_a_very_long_picture_keeps_a_pixel():
    assert decoded(thumbnail(Image.new("RGB", (5000, 3)))).size == (SIDE, 1)


def test_a_small_picture_looks_like_the_large_one():
    left_dark = Image.fromarray(np.repeat([[0] * 100 + [255] * 100], 100, axis=0).astype(np.uint8))
    pixels = np.asarray(decoded(thumbnail(left_dark)).convert("L"))
    assert pixels[:, :40].max() < 30
    assert pixels[:, -40:].min() > 225


def test_the_picture_is_left_as_it_was_and_is_the_same_each_time():
    image = noise((300, 300), "RGB")
    assert thumbnail(image) == thumbnail(image)
    assert image.size == (300, 300)


# In a cell of a table

A, B = (thumbnail(Image.new("RGB", (4, 4), color)) for color in ("red", "blue"))


def test_items_that_all_have_a_picture_are_pictures():
    cell = as_cell(["a", "b"], {"a": A, "b": B, "c": "else"}, [True, False])
    assert cell == (Picture(A, "a", True), Picture(B, "b", False))
    assert as_cell([7], {7: A}) == (Picture(A, "7", None),)


def test_items_without_a_picture_are_texts_or_ids():
    assert as_cell(["a", "b"], {"a": "a cup"}, [True, False]) == "✓ a cup, ✗ b"
    assert as_cell([7, 8], {}) == "7, 8"
    assert as_cell([7, 8], nothing([7, 8]), [False, True]) == "✗ 7, ✓ 8"
    assert as_cell(["a"], {"a": "two\nlines"}) == "two lines"


def test_no_items_are_an_empty_text():
    assert as_cell([], {"a": A}) == ""


def test_each_item_has_its_mark():
    with pytest.raises(ValueError, match="zip"):
        as_cell(["a", "b"], {}, [True])


def test_where_one_picture_is_missing_the_others_stand_by_their_ids():
    cell = as_cell(["a", "b"], {"a": A}, [True, False])
    assert cell == "✓ a, ✗ b"


def test_a_text_that_begins_like_a_picture_is_a_text():
    assert as_cell(["a"], {"a": "data: the new oil"}) == "data: the new oil"


def test_pictures_stand_in_the_page_itself():
    table = Table(["found"], [[as_cell(["a", "b"], {"a": A, "b": B}, [True, False])]])
    html = render_html(Page("T", [], [Section("S", tables=[table])]))
    assert f'src="{A}"' in html.replace("&#43;", "+")
    assert 'alt="a"' in html


def test_long_texts_are_cut():
    assert shorten("x" * LONGEST) == "x" * LONGEST
    cut = shorten("x" * (LONGEST + 1))
    assert (len(cut), cut[-1]) == (LONGEST, "…")
    assert shorten("  a \n\t b  ") == "a b"
    assert shorten("") == ""
