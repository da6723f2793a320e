"""Suggestions for misspelt words."""

import difflib
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

MOST = 30  # number of words that are listed


def closest(word: str, known: Iterable[str]) -> str | None:
    """The known word that is most like a misspelt word; case, `-` and `_` do not count.

    Example:
        >>> closest("Learning-Rat", ["learning_rate", "epochs"])
        'learning_rate'
        >>> closest("x", ["learning_rate", "epochs"]) is None
        True
    """
    by_plain: dict[str, str] = {}
    for name in known:
        by_plain.setdefault(_plain(name), name)
    close = difflib.get_close_matches(_plain(word), by_plain, n=1)
    return by_plain[close[0]] if close else None


def suggest(word: str, known: Iterable[str]) -> str:
    """Returns a sentence that helps with a misspelt word.

    Example:
        >>> suggest("learning_rat", ["learning_rate", "epochs"])
        'Did you mean `learning_rate`?'
        >>> suggest("x", ["learning_rate", "epochs"])
        'Known: learning_rate, epochs.'
    """
    names = list(known)
    if close := closest(word, names):
        return f"Did you mean `{close}`?"
    more = f" and {len(names) - MOST:,} more" if len(names) > MOST else ""
    return f"Known: {', '.join(names[:MOST])}{more}."


def suggest_path(path: Path, remedy: str = "Check the path.") -> str:
    """Returns a sentence that names a similar path in the same folder, or else the remedy."""
    with suppress(OSError):
        close = closest(path.name, sorted(other.name for other in path.parent.iterdir()))
        if close is not None:
            return f"Did you mean `{path.with_name(close)}`?"
    return remedy


def _plain(word: str) -> str:
    return word.lower().replace("-", "_")
