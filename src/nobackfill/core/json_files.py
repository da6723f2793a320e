"""Reading of JSON from untrusted files: limits on size and depth, and fields checked by type."""

import json
import math
import types
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import (
    Any,
    Literal,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from nobackfill.errors import DataError

LARGEST = 2**28  # bytes of a document
DEEPEST = 64  # lists and objects within each other
DIGITS = 300  # of a number: a float has at most 309

Kind = TypeVar("Kind")


def read_json_text(path: Path) -> str:
    """Reads a text file that is no larger than our JSON files can be."""
    try:
        if (size := path.stat().st_size) > LARGEST:
            raise DataError(
                f"{path} has {size:,} bytes, but such a file has at most {LARGEST:,}. It is "
                f"another file, or damaged: write it again."
            )
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"{path} cannot be read: {reason}. Write it again.") from None


def parse_json(text: str | bytes, where: str, remedy: str = "Write it again.") -> Any:
    """Parses JSON of limited depth, without NaN and infinity.

    Args:
        text: A document.
        where: Name of its source, for errors.
        remedy: Sentence on what to do if it is invalid, for errors.

    Example:
        >>> parse_json("[1, 2]", "here")
        [1, 2]
    """
    try:
        value = json.loads(text, parse_int=_whole, parse_float=_finite, parse_constant=_refuse)
        _check_depth(value)
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else error
        raise DataError(f"{where} is no JSON that nobackfill reads: {reason}. {remedy}") from None
    return value


def parse_object(text: str | bytes, where: str, remedy: str = "Write it again.") -> dict[str, Any]:
    """Parses a JSON object; see `parse_json`."""
    value = parse_json(text, where, remedy)
    if not isinstance(value, dict):
        raise DataError(
            f"{where} must contain a JSON object, not a {type(value).__name__}. {remedy}"
        )
    return value


def as_kind(kind: type[Kind], value: Any, where: str, remedy: str = "Write it again.") -> Kind:
    """Converts a JSON object to a dataclass, or checks another value, by the annotations.

    An object may have more fields than a TypedDict names.

    Missing fields get their defaults. A missing field without one, an unknown field and a value
    of another type are errors that name the field.

    Example:
        >>> from dataclasses import dataclass
        >>> @dataclass
        ... class Point:
        ...     x: float
        ...     name: str | None = None
        >>> as_kind(Point, {"x": 1}, "here")
        Point(x=1.0, name=None)
        >>> as_kind(Point, {"x": "one"}, "here")
        Traceback (most recent call last):
            ...
        nobackfill.errors.DataError: here: `x` must be a number, not 'one'. Write it again.
    """
    try:
        made: Kind = _convert(kind, value, "")
    except _Wrong as error:
        raise DataError(f"{where}: {error}. {remedy}") from None
    return made


class _Wrong(ValueError):
    """A value of another type than that of its field."""


NAMES = {
    str: "text", int: "a whole number", float: "a number", bool: "true or false",
    type(None): "null", dict: "an object", list: "a list",
}  # fmt: skip


def _convert(kind: Any, value: Any, field: str) -> Any:
    """Converts a JSON value to a type; `field` is its path within the document."""
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is Any:
        return value
    if origin is Literal:
        if not isinstance(value, str | int) or value not in arguments:
            raise _wrong(field, " or ".join(map(repr, arguments)), value)
        return value
    if origin in (Union, types.UnionType):
        return _first_that_fits(arguments, value, field)
    if is_dataclass(kind):
        return _make(kind, value, field)
    if is_typeddict(kind):
        return _check_fields(kind, value, field)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        items = _checked(dict, value, field).items()
        return {key: _convert(arguments[1], item, _inner(field, key)) for key, item in items}
    if origin is not None:  # a list, a sequence or a tuple
        return _convert_items(origin, arguments, _checked(list, value, field), field)
    if kind is float and type(value) is int:
        return float(value)
    return _checked(kind, value, field)


def _first_that_fits(kinds: tuple[Any, ...], value: Any, field: str) -> Any:
    """Converts a value to the first of several types that it has."""
    error: _Wrong | None = None
    for kind in sorted(kinds, key=lambda kind: kind is not type(value)):
        try:
            return _convert(kind, value, field)
        except _Wrong as wrong:
            error = error or wrong
    plain = [NAMES[kind] for kind in kinds if kind in NAMES]
    if len(plain) == len(kinds):
        raise _wrong(field, " or ".join(plain), value)
    assert error is not None
    raise error


def _convert_items(origin: Any, arguments: tuple[Any, ...], value: Any, field: str) -> Any:
    """Converts a list to a list or a tuple."""
    is_fixed = origin is tuple and Ellipsis not in arguments
    if is_fixed and len(value) != len(arguments):
        raise _wrong(field, f"a list of {len(arguments)}", value)
    kinds = arguments if is_fixed else arguments[:1] * len(value)
    items = [
        _convert(kind, item, f"{field}[{place}]")
        for place, (kind, item) in enumerate(zip(kinds, value, strict=True))
    ]
    return tuple(items) if origin is tuple else items


def _make(kind: Any, value: Any, field: str) -> Any:
    """Makes a dataclass of an object."""
    given = _checked(dict, value, field)
    known = {entry.name: entry for entry in fields(kind) if entry.init}
    hints = get_type_hints(kind)
    if unknown := [name for name in given if name not in known]:
        raise _Wrong(f"`{_inner(field, unknown[0])}` is unknown (known: {', '.join(known)})")
    for name, entry in known.items():
        has_default = entry.default is not MISSING or entry.default_factory is not MISSING
        if name not in given and not has_default:
            raise _Wrong(f"`{_inner(field, name)}` is missing")
    return kind(**{
        name: _convert(hints[name], item, _inner(field, name)) for name, item in given.items()
    })  # fmt: skip


def _check_fields(kind: Any, value: Any, field: str) -> Any:
    """Checks the known fields of an object; others remain as they are."""
    given = _checked(dict, value, field)
    if missing := sorted(kind.__required_keys__ - given.keys()):
        raise _Wrong(f"`{_inner(field, missing[0])}` is missing")
    hints = get_type_hints(kind)
    known = {name: item for name, item in given.items() if name in hints}
    made = {name: _convert(hints[name], item, _inner(field, name)) for name, item in known.items()}
    return {**given, **made}


def _checked(kind: Any, value: Any, field: str) -> Any:
    """Returns a value of exactly a type: true is no number."""
    if type(value) is not kind:
        raise _wrong(field, NAMES.get(kind, kind.__name__), value)
    return value


def _wrong(field: str, kind: str, value: Any) -> _Wrong:
    shown = repr(value)
    shown = shown if len(shown) <= 40 else f"{shown[:39]}…"
    return _Wrong(f"`{field}` must be {kind}, not {shown}" if field else f"it must be {kind}")


def _inner(field: str, name: str) -> str:
    return f"{field}.{name}" if field else name


def _whole(digits: str) -> int:
    if len(digits) > DIGITS:
        raise ValueError(f"a number has {len(digits):,} digits")
    return int(digits)


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError(f"the number {digits[:20]} is too large")
    return number


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is no number")


def _check_depth(value: Any) -> None:
    """Raises RecursionError if lists and objects are nested too deeply."""
    level, depth = [value], 0
    while level := [
        item
        for outer in level
        if isinstance(outer, dict | list)
        for item in (outer.values() if isinstance(outer, dict) else outer)
        if isinstance(item, dict | list)
    ]:
        depth += 1
        if depth > DEEPEST:
            raise RecursionError
