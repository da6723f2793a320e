"""Arguments of somebody else's network, as a recipe can hold them: a list of `name=value`."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from nobackfill.errors import ConfigError


def read_arguments(written: Sequence[str], *, key: str, where: str = "model") -> dict[str, Any]:
    """Reads `name=value`, the value in JSON; what is no JSON is taken as text.

    Args:
        written: One text for each argument.
        key: Of the table, for the error.
        where: The table.

    Example:
        >>> read_arguments(["width=8", "act=gelu", "depths=[2, 2]", "norm=null"], key="arguments")
        {'width': 8, 'act': 'gelu', 'depths': [2, 2], 'norm': None}
    """
    arguments: dict[str, Any] = {}
    for text in written:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not equals or not name.isidentifier() or name in arguments:
            raise ConfigError(
                f'wanted `{key}` in [{where}] as a list such as ["width=8", "act=gelu"], each '
                f"name once, but got {text!r}."
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
