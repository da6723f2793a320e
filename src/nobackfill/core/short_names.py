"""Ids and texts, short enough for a table."""

from collections.abc import Sequence
from os.path import commonprefix
from typing import Any

LONGEST, LONGEST_ID = 80, 40  # characters of a text and of an id


def common_folder(ids: Sequence[Any]) -> str:
    """The folder that all ids share, if they are paths; else empty.

    Example:
        >>> common_folder(["birds/owl/1.jpg", "birds/ox/2.jpg"]), common_folder(["a1", "a2"])
        ('birds/', '')
    """
    names = [str(item) for item in ids]
    if len(set(names)) < 2:
        return ""
    shared = commonprefix(names)
    return shared[: shared.rfind("/") + 1]


def short_id(item: Any, folder: str = "", longest: int = LONGEST_ID) -> str:
    """An id without the shared folder; a long id is cut in the middle.

    Example:
        >>> short_id("birds/owl/1.jpg", "birds/"), len(short_id("a" * 100))
        ('owl/1.jpg', 40)
    """
    name = " ".join(str(item).removeprefix(folder).split())
    if len(name) <= longest:
        return name
    end = longest // 2
    return f"{name[: longest - end - 1]}…{name[-end:]}"


def shorten(text: str, longest: int = LONGEST) -> str:
    r"""A text in one line; a long text is cut at its end.

    Example:
        >>> shorten("a\n  b"), len(shorten("word " * 100))
        ('a b', 80)
    """
    line = " ".join(text.split())
    return line if len(line) <= longest else line[: longest - 1] + "…"
