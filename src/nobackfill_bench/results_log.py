"""Log of results: one JSON line per run, appended when the run ends."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nobackfill.errors import DataError

Line = dict[str, Any]
Key = Callable[[Line], tuple[Any, ...]]  # lines with equal keys are results of the same run
KEY = ("suite", "way", "seed", "changes")


def key_of(line: Line) -> tuple[Any, ...]:
    """Returns the key of a run; lines with equal keys are results of the same run."""
    suite, way, seed, changes = (line[key] for key in KEY)
    return suite, way, seed, tuple(changes)


def read_lines(path: Path, *, key: Key = key_of) -> list[Line]:
    """Reads all lines of a file, or none if it does not exist; a later line replaces an equal key.

    A last line that a kill cut short is skipped: its run is repeated.
    """
    if not path.exists():
        return []
    texts = path.read_text(encoding="utf-8").split("\n")
    lines: dict[tuple[Any, ...], Line] = {}
    for number, text in enumerate(texts, start=1):
        if not text.strip():
            continue
        try:
            line = json.loads(text)
            lines[key(line)] = line
        except (ValueError, KeyError, TypeError) as error:
            if number == len(texts):  # no line break behind it
                break
            raise DataError(
                f"Could not read the result in line {number} of {path} ({error}). Remove that "
                f"line; its run is then repeated."
            ) from None
    return list(lines.values())


def mend(path: Path, *, key: Key = key_of) -> None:
    """Completes a last line that lacks only its line break, and removes one that lacks more."""
    if not path.exists():
        return
    content = path.read_bytes()
    whole, last = content[: content.rfind(b"\n") + 1], content[content.rfind(b"\n") + 1 :]
    if last:
        kept = last + b"\n" if is_whole(last, key=key) else b""
        path.write_bytes(whole + kept)


def is_whole(text: bytes, *, key: Key = key_of) -> bool:
    """Whether a text is a complete result."""
    try:
        key(json.loads(text))
    except (ValueError, KeyError, TypeError):
        return False
    return True


def append(path: Path, line: Line) -> None:
    """Appends a line."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
