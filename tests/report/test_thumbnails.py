"""How single items are shown: small pictures that stand in the page itself, texts, or ids."""

import base64
import io

import numpy as np
import pytest
from PIL import Image

from nobackfill.core.page import Page, Picture, Section, Table
from nobackfill.core.short_names import common_folder
from nobackfill.report.html import render_html
from nobackfill.report.thumbnails import (
    SIDE,
    as_cell,
    show_ids,
    thumbnail,
)

RIGHT, WRONG = "✓\N{NO-BREAK SPACE}", "✗\N{NO-BREAK SPACE}"  # no mark stands alone on a line


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
    assert as_cell(["a", "b"], {"a": "a cup"}, [True, False]) == f"{RIGHT}a cup\n{WRONG}b"
    assert as_cell([7, 8], {}) == "7\n8"
    assert as_cell([7, 8], show_ids([7, 8]), [False, True]) == f"{WRONG}7\n{RIGHT}8"
    assert as_cell(["a"], {"a": "two\nlines"}) == "two lines"


def test_no_items_are_an_empty_text():
    assert as_cell([], {"a": A}) == ""


def test_each_item_has_its_mark():
    with pytest.raises(ValueError, match="zip"):
        as_cell(["a", "b"], {}, [True])


def test_where_one_picture_is_missing_the_others_stand_by_their_ids():
    cell = as_cell(["a", "b"], {"a": A}, [True, False])
    assert cell == f"{RIGHT}a\n{WRONG}b"


def test_a_text_that_begins_like_a_picture_is_a_text():
    assert as_cell(["a"], {"a": "data: the new oil"}) == "data: the new oil"


def test_pictures_stand_in_the_page_itself():
    table = Table(["found"], [[as_cell(["a", "b"], {"a": A, "b": B}, [True, False])]])
    html = render_html(Page("T", [], [Section("S", tables=[table])]))
    assert f'src="{A}"' in html.replace("&#43;", "+")
    assert 'alt="a"' in html


# Ids that are paths


def test_the_folder_that_all_share_is_left_out():
    ids = ["birds/images/owl/1.jpg", "birds/images/ox/1.jpg"]
    folder = common_folder(ids)
    assert folder == "birds/images/"
    assert as_cell(ids, {}, folder=folder) == "owl/1.jpg\nox/1.jpg"
    texts = {ids[0]: "birds/images/ is where it lies"}
    assert as_cell(ids[:1], texts, folder=folder) == "birds/images/ is where it lies"


def test_each_item_has_a_line_of_its_own_in_the_page():
    names = [f"{letter * 30}_{number}.jpg" for number, letter in enumerate("ab")]
    table = Table(["found"], [[as_cell(names, {}, [True, False])], [as_cell(["a cup"], {})]])
    html = render_html(Page("T", [], [Section("S", tables=[table])]))
    for mark, name in zip((RIGHT, WRONG), names, strict=True):
        assert f'<div class="line name">{mark}{name} </div>' in html
    assert '<td class="short">a cup</td>' in html
