"""Arguments of a network of another package, as a list of `name=value` in a recipe."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from nobackfill.errors import ConfigError


def read_arguments(written: Sequence[str], *, key: str, where: str = "model") -> dict[str, Any]:
    """Reads `name=value`, where a value that is not JSON is text; key and table are for errors.

    Example:
        >>> read_arguments(["width=8", "act=gelu", "depths=[2, 2]", "norm=null"], key="arguments")
        {'width': 8, 'act': 'gelu', 'depths': [2, 2], 'norm': None}
    """
    arguments: dict[str, Any] = {}
    for text in written:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not equals or not name.isidentifier() or name in arguments:
            raise ConfigError(
                f'`{key}` in [{where}] must be a list such as ["width=8", "act=gelu"], with each '
                f"name once, but contains {text!r}."
            )
        try:
            arguments[name] = json.loads(value)
        except json.JSONDecodeError:
            arguments[name] = value
    return arguments


def write_arguments(arguments: Mapping[str, Any]) -> tuple[str, ...]:
    """Writes arguments so that `read_arguments` reads the same ones.

    Example:
        >>> write_arguments({"width": 8, "act": "gelu"})
        ('width=8', 'act="gelu"')
    """
    return tuple(f"{name}={json.dumps(value)}" for name, value in arguments.items())
