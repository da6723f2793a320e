"""Conversion of TOML tables into settings. Unknown keys are errors."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from nobackfill.core.config.defaults import DEFAULT_METHOD
from nobackfill.core.config.schema import (
    Choice,
    ImagesConfig,
    OldConfig,
    PairsConfig,
    Recipe,
    TrainConfig,
)
from nobackfill.core.suggest import suggest
from nobackfill.errors import ConfigError

T = TypeVar("T")

CHOICES = ("data", "model", "text", "method")
SETTINGS = {"images": ImagesConfig, "pairs": PairsConfig, "old": OldConfig, "train": TrainConfig}


def build_recipe(tables: Mapping[str, Any]) -> Recipe:
    """Builds a recipe from the tables of a TOML file."""
    # Check that everything is a known table.
    known = [item.name for item in fields(Recipe)]
    for name, table in tables.items():
        if name not in known:
            raise ConfigError(f"unknown table [{name}] in the recipe. {suggest(name, known)}")
        if not isinstance(table, dict):
            raise ConfigError(f"`{name}` must be a table [{name}], not {name} = {table!r}.")
    if "pairs" in tables and "text" not in tables:
        raise ConfigError(
            "The recipe has [pairs] but no [text]. Add a text encoder in [text], or remove [pairs]."
        )
    tests = tables.get("tests", {})
    for name, table in tests.items():
        plain = name.replace("_", "").isalnum() and name.isascii() and name != "data"
        if not isinstance(table, dict) or not plain:
            raise ConfigError(
                f"[tests] contains {name} = {table!r}. It must contain tables such as "
                f"[tests.paris], named by letters, digits and _ (and not `data`, which is the "
                f"recipe's own collection)."
            )
    # Build the parts.
    parts: dict[str, Any] = {
        name: _choice(tables[name], where=name) for name in CHOICES if name in tables
    }
    for name, kind in SETTINGS.items():
        if name in tables:
            parts[name] = build(kind, tables[name], where=name)
    if "method" not in parts and parts.get("old", OldConfig()) != OldConfig():
        parts["method"] = Choice(DEFAULT_METHOD)
    return Recipe(
        **parts,
        tests={name: _choice(table, where=f"tests.{name}") for name, table in tests.items()},
        expected=tables.get("expected", {}),
    )


def build(kind: type[T], table: Mapping[str, Any], *, where: str) -> T:
    """Builds a settings object from one TOML table."""
    hints = get_type_hints(kind)
    check_keys(table, [item.name for item in fields(kind)], where=where)  # type: ignore[arg-type]
    return kind(**{k: _typed(v, hints[k], key=k, where=where) for k, v in table.items()})


def resolve_options(
    function: Callable[..., Any], options: Mapping[str, Any], *, where: str
) -> dict[str, Any]:
    """Checks options against the keyword-only arguments of a function and adds its defaults."""
    hints = get_type_hints(function.__init__ if inspect.isclass(function) else function)
    parameters = inspect.signature(function).parameters.values()
    defaults = {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}
    defaults.pop("generator", None)  # randomness comes from the seed
    check_keys(options, list(defaults), where=where)
    return defaults | {k: _typed(v, hints[k], key=k, where=where) for k, v in options.items()}


def check_keys(table: Mapping[str, Any], known: list[str], *, where: str) -> None:
    """Raises at the first unknown key, and suggests a similar one."""
    for key in table:
        if key not in known:
            raise ConfigError(f"unknown key `{key}` in [{where}]. {suggest(key, known)}")


def _choice(table: Mapping[str, Any], *, where: str) -> Choice:
    """Splits a table into `name` and its options."""
    if not isinstance(table.get("name"), str):
        raise ConfigError(
            f"[{where}] has no `name`; its keys are: {', '.join(table) or 'none'}. Add the name."
        )
    return Choice(table["name"], {key: value for key, value in table.items() if key != "name"})


def _typed(value: Any, hint: Any, *, key: str, where: str) -> Any:
    """Converts a TOML value to the type of a setting, or raises."""
    # Optional types accept None; otherwise their first member is the type.
    if get_origin(hint) in (Union, UnionType):
        if value is None and type(None) in get_args(hint):
            return None
        hint = next(option for option in get_args(hint) if option is not type(None))
    if get_origin(hint) is Literal:
        if value in get_args(hint):
            return value
        names = ", ".join(str(option) for option in get_args(hint))
        raise ConfigError(f"`{key}` in [{where}] must be one of {names}, not {value!r}.")
    is_list = get_origin(hint) in (tuple, Sequence)
    if is_list and isinstance(value, list | tuple):
        return tuple(_typed(v, get_args(hint)[0], key=key, where=where) for v in value)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            raise ConfigError(f"`{key}` in [{where}] is too large for a number.") from None
    kind = list if is_list else hint
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise ConfigError(
            f"`{key}` in [{where}] must be {getattr(kind, '__name__', kind)}, not {value!r}. "
            f"Change it in the recipe, or by --set {where}.{key}=…"
        )
    return value
