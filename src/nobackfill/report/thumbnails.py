"""How single items are shown in a report: as a small picture, as a text, or by their id."""

import base64
import io
from collections.abc import Callable, Mapping, Sequence
from os.path import commonprefix
from typing import Any

from PIL import Image

from nobackfill.report.page import Cell, Picture

Show = Callable[
    [Sequence[Any]], Mapping[Any, str]
]  # ids in; data URIs or texts of some of them out
SIDE, LONGEST, LONGEST_ID = 96, 80, 40  # pixels of a picture; letters of a text, and of an id


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


def as_cell(
    ids: Sequence[Any], shown: Mapping[Any, str], right: Sequence[bool] = (), *, folder: str = ""
) -> Cell:
    """Items in a cell of a table: pictures where all have one, else texts or ids, one to a line.

    Args:
        ids: The items.
        shown: What a `Show` returned.
        right: Whether each is what was looked for; empty where that is no question.
        folder: What ids begin with that need not be told, as `common_folder` returns it.
    """
    marks: Sequence[bool | None] = list(right) or [None] * len(ids)
    both = list(zip(ids, marks, strict=True))
    is_picture = [shown.get(item, "").startswith("data:image/") for item in ids]
    if ids and all(is_picture):
        return tuple(Picture(shown[item], str(item), mark) for item, mark in both)
    sign = {True: "✓\N{NO-BREAK SPACE}", False: "✗\N{NO-BREAK SPACE}", None: ""}
    texts = [
        short_id(item, folder) if picture or item not in shown else shorten(shown[item])
        for item, picture in zip(ids, is_picture, strict=True)
    ]
    return "\n".join(sign[mark] + text for text, mark in zip(texts, marks, strict=True))


def common_folder(ids: Sequence[Any]) -> str:
    """The folder in which all items lie whose ids are paths; empty where there is none.

    Example:
        >>> common_folder(["birds/owl/1.jpg", "birds/ox/2.jpg"]), common_folder(["a1", "a2"])
        ('birds/', '')
    """
    names = [str(item) for item in ids]
    if len(set(names)) < 2:
        return ""
    shared = commonprefix(names)
    return shared[: shared.rfind("/") + 1]


def short_id(item: Any, folder: str = "") -> str:
    """An id without the folder that all lie in, cut in the middle where it is long.

    Example:
        >>> short_id("birds/owl/1.jpg", "birds/"), len(short_id("a" * 100))
        ('owl/1.jpg', 40)
    """
    name = " ".join(str(item).removeprefix(folder).split())
    if len(name) <= LONGEST_ID:
        return name
    end = LONGEST_ID // 2
    return f"{name[: LONGEST_ID - end - 1]}…{name[-end:]}"


def shorten(text: str) -> str:
    r"""A text in one line, cut where it is long.

    Example:
        >>> shorten("a\n  b"), len(shorten("word " * 100))
        ('a b', 80)
    """
    line = " ".join(text.split())
    return line if len(line) <= LONGEST else line[: LONGEST - 1] + "…"
