"""The results, one JSON line per run: appended as they come, never twice."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nobackfill.errors import DataError

Line = dict[str, Any]
Key = Callable[[Line], tuple[Any, ...]]  # two lines with one key tell of the same run
KEY = ("suite", "way", "seed", "changes")


def key_of(line: Line) -> tuple[Any, ...]:
    """What a run was; two lines with the same key tell of the same one."""
    suite, way, seed, changes = (line[key] for key in KEY)
    return suite, way, seed, tuple(changes)


def read_lines(path: Path, *, key: Key = key_of) -> list[Line]:
    """All lines of a file; none where it is not there. Of two with one key the later counts.

    A last line that a kill cut short is left out: its run will be made again.
    """
    if not path.exists():
        return []
    texts = path.read_text(encoding="utf-8").split("\n")
    found: dict[tuple[Any, ...], Line] = {}
    for number, text in enumerate(texts, start=1):
        if not text.strip():
            continue
        try:
            line = json.loads(text)
            found[key(line)] = line
        except (ValueError, KeyError) as error:
            if number == len(texts):  # no line break behind it
                break
            raise DataError(
                f"wanted a result in line {number} of {path}, but cannot read it ({error}). "
                f"Remove that line; its run will be made again."
            ) from None
    return list(found.values())


def mend(path: Path, *, key: Key = key_of) -> None:
    """Ends a last line that lacks only its line break, and cuts off one that lacks more."""
    if not path.exists():
        return
    content = path.read_bytes()
    whole, last = content[: content.rfind(b"\n") + 1], content[content.rfind(b"\n") + 1 :]
    if last:
        kept = last + b"\n" if is_whole(last, key=key) else b""
        path.write_bytes(whole + kept)


def is_whole(text: bytes, *, key: Key = key_of) -> bool:
    """Whether a text is a whole result."""
    try:
        key(json.loads(text))
    except (ValueError, KeyError, TypeError):
        return False
    return True


def append(path: Path, line: Line) -> None:
    """Adds a line."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
