"""Printing of ids, labels, paths and texts from files, which cannot control the terminal.

Every console of the package is a `PlainConsole`. With --json, texts are exact: JSON escapes them.
"""

import re
from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

# Control characters of both sets, halves of surrogate pairs, marks and overrides of the direction
# of writing, separators of lines, annotations and invisible tags.
HIDDEN = (
    r"\x00-\x09\x0b-\x1f\x7f-\x9f\ud800-\udfff\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"
    r"\ufeff\ufff9-\ufffb\U000e0000-\U000e007f"
)
CONTROLS, CONTROLS_OR_LINES = re.compile(f"[{HIDDEN}]"), re.compile(rf"[\n{HIDDEN}]")
PLAIN = {"markup": False, "emoji": False, "highlight": False}


def visible(text: str, *, lines: bool = False) -> str:
    r"""Returns a text in which characters that control a terminal are written as in Python.

    New lines are, too, because they would make one id look like two; `lines` keeps them.

    Example:
        >>> visible("a\x1b[31mb\u202ec"), visible("ß\n"), visible("ß\n", lines=True)
        ('a\\x1b[31mb\\u202ec', 'ß\\n', 'ß\n')
    """
    if text.isascii() and text.isprintable():
        return text
    return (CONTROLS if lines else CONTROLS_OR_LINES).sub(_escaped, text)


def _escaped(match: re.Match[str]) -> str:
    """Returns a character as Python writes it."""
    return match[0].encode("unicode_escape").decode()


class PlainConsole(Console):
    """A console that prints texts as they are: neither markup nor emoji codes nor escapes."""

    def __init__(self, **options: Any):
        super().__init__(**{**PLAIN, **options})

    def print(self, *objects: Any, **options: Any) -> None:
        """Prints objects; a text becomes visible before its width is measured.

        New lines remain: what comes from data is made visible where it is put into a text.
        """
        texts = (
            Text(visible(part, lines=True)) if isinstance(part, str) else part for part in objects
        )
        super().print(*texts, **options)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Yields parts of the output, of which texts are visible."""
        for segment in super().render(renderable, options):
            shown = segment.text if segment.control else visible(segment.text, lines=True)
            yield segment if shown == segment.text else Segment(shown, segment.style)
