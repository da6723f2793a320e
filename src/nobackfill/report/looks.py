"""How single items are shown in a report: as a small picture, as a text, or by their id."""

import base64
import io
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from PIL import Image

from nobackfill.report.page import Cell, Picture

Show = Callable[
    [Sequence[Any]], Mapping[Any, str]
]  # ids in; data URIs or texts of some of them out
SIDE, LONGEST = 96, 80  # pixels of a picture; letters of a text


def nothing(ids: Sequence[Any]) -> Mapping[Any, str]:
    """Shows no item: they appear by their ids."""
    return {}


def thumbnail(image: Image.Image) -> str:
    """A small JPEG of a picture, as a data URI."""
    small = image.convert("RGB")
    small.thumbnail((SIDE, SIDE))
    out = io.BytesIO()
    small.save(out, "JPEG", quality=82)
    return "data:image/jpeg;base64," + base64.b64encode(out.getvalue()).decode()


def as_cell(ids: Sequence[Any], shown: Mapping[Any, str], right: Sequence[bool] = ()) -> Cell:
    """Items in a cell of a table: pictures where all have one, else their texts or ids.

    Args:
        ids: The items.
        shown: What a `Show` returned.
        right: Whether each is what was looked for; empty where that is no question.
    """
    marks: Sequence[bool | None] = list(right) or [None] * len(ids)
    both = list(zip(ids, marks, strict=True))
    is_picture = [shown.get(item, "").startswith("data:image/") for item in ids]
    if ids and all(is_picture):
        return tuple(Picture(shown[item], str(item), mark) for item, mark in both)
    sign = {True: "✓ ", False: "✗ ", None: ""}
    texts = [
        str(item) if picture else shown.get(item, str(item))
        for item, picture in zip(ids, is_picture, strict=True)
    ]
    return ", ".join(sign[mark] + shorten(text) for text, mark in zip(texts, marks, strict=True))


def shorten(text: str) -> str:
    r"""A text in one line, cut where it is long.

    Example:
        >>> shorten("a\n  b"), len(shorten("word " * 100))
        ('a b', 80)
    """
    line = " ".join(text.split())
    return line if len(line) <= LONGEST else line[: LONGEST - 1] + "…"
