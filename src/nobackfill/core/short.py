"""Records that print in a few lines, however large their arrays and lists are."""

from collections.abc import Collection, Mapping
from dataclasses import fields
from typing import Any

from nobackfill.core.page import Page, Readable, Section, Table

LONGEST = 60  # characters of a value
ENTRIES = 3  # of a collection that are shown


class Short(Readable):
    """A dataclass (`repr=False`) that describes arrays and collections by their sizes.

    Its page is a table of its fields.

    Example:
        >>> from dataclasses import dataclass
        >>> @dataclass(repr=False)
        ... class Items(Short):
        ...     name: str
        ...     ids: list[int]
        >>> Items("birds", list(range(1000)))
        Items(name='birds', ids=<1,000 entries>)
    """

    def page(self) -> Page:
        """A table of the fields."""
        rows = [[name, text] for name, text in self.described().items()]
        table = Table(["field", "value"], rows)
        return Page(type(self).__name__, [type(self).__name__], [Section("", "", [table])])

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={text}" for name, text in self.described().items())
        return f"{type(self).__name__}({values})"

    def described(self) -> dict[str, str]:
        """Returns each field in a few characters, by name."""
        return {
            field.name: described(getattr(self, field.name))
            for field in fields(self)  # type: ignore[arg-type]  # subclasses are dataclasses
        }


def described(value: Any) -> str:
    """Returns a value in a few characters: arrays by shape, long collections by size.

    Example:
        >>> described(range(1000)), described({"a": 1}), described("x" * 1000)
        ('<1,000 entries>', "{'a': 1}", '<text of 1,000 characters>')
    """
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        shape = " x ".join(f"{size:,}" for size in value.shape) or "scalar"
        return f"<{shape} {str(value.dtype).removeprefix('torch.')}>"
    if isinstance(value, str):
        text = repr(value)
        return text if len(text) <= LONGEST else f"<text of {len(value):,} characters>"
    if isinstance(value, Mapping | Collection) and len(value) > ENTRIES:
        return f"<{len(value):,} entries>"
    if isinstance(value, Mapping) and type(value) is dict:
        entries = ", ".join(f"{key!r}: {described(part)}" for key, part in value.items())
        return within(f"{{{entries}}}", f"<{len(value):,} entries>")
    if isinstance(value, list | tuple) and type(value) in (list, tuple):
        entries = ", ".join(map(described, value))
        brackets = "[]" if isinstance(value, list) else "()"
        return within(f"{brackets[0]}{entries}{brackets[1]}", f"<{len(value):,} entries>")
    if isinstance(value, float):
        return f"{value:.6g}"
    return within(repr(value), f"<{type(value).__name__}>")


def within(text: str, otherwise: str) -> str:
    """Returns a text that fits into a line, or else `otherwise`."""
    return text if len(text) <= LONGEST and "\n" not in text else otherwise
