"""From the tables of a TOML file to settings, where an unknown key is an error."""

import difflib
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
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
from nobackfill.errors import ConfigError

T = TypeVar("T")
COMPATIBLE = DEFAULT_METHOD  # the method of a recipe that names an old model, and no method


def build_recipe(tables: Mapping[str, Any]) -> Recipe:
    """Makes a recipe from the tables of a TOML file."""
    known = [item.name for item in fields(Recipe)]
    for name, table in tables.items():
        if name not in known:
            raise ConfigError(f"unknown table [{name}] in the recipe. {suggest(name, known)}")
        if not isinstance(table, dict):
            raise ConfigError(f"wanted a table [{name}], but got {name} = {table!r}.")
    parts: dict[str, Any] = {}
    for name in ("data", "model", "text", "method"):
        if name in tables:
            parts[name] = _choice(tables[name], where=name)
    if "pairs" in tables and "text" not in tables:
        raise ConfigError(
            "wanted an encoder of texts beside [pairs], but the recipe has no [text]. Add that, or "
            "remove [pairs]."
        )
    kinds = {"images": ImagesConfig, "pairs": PairsConfig, "old": OldConfig, "train": TrainConfig}
    for name, kind in kinds.items():
        if name in tables:
            parts[name] = build(kind, tables[name], where=name)
    if "method" not in parts and parts.get("old", OldConfig()) != OldConfig():
        parts["method"] = Choice(COMPATIBLE)
    tests = tables.get("tests", {})
    for name, table in tests.items():
        plain = name.replace("_", "").isalnum() and name.isascii() and name != "data"
        if not isinstance(table, dict) or not plain:
            raise ConfigError(
                f"wanted tables such as [tests.paris], named by letters, digits and _ (and not "
                f"`data`, which is the recipe's own), but got {name} = {table!r} in [tests]."
            )
    return Recipe(
        **parts,
        tests={name: _choice(table, where=f"tests.{name}") for name, table in tests.items()},
        expected=tables.get("expected", {}),
    )


def build(kind: type[T], table: Mapping[str, Any], *, where: str) -> T:
    """Makes a settings object from one TOML table; an unknown key is an error, never ignored."""
    hints = get_type_hints(kind)
    known = [item.name for item in fields(kind)]  # type: ignore[arg-type]
    check_keys(table, known, where=where)
    return kind(**{k: _typed(v, hints[k], key=k, where=where) for k, v in table.items()})


def resolve_options(
    function: Callable[..., Any], options: Mapping[str, Any], *, where: str
) -> dict[str, Any]:
    """Checks options against the keyword-only arguments of a function; fills in its defaults."""
    hints = get_type_hints(function.__init__ if inspect.isclass(function) else function)
    parameters = inspect.signature(function).parameters.values()
    keywords = {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}
    keywords.pop("generator", None)  # randomness comes from the seed
    check_keys(options, list(keywords), where=where)
    given = {k: _typed(v, hints[k], key=k, where=where) for k, v in options.items()}
    return {**keywords, **given}


def check_keys(table: Mapping[str, Any], known: list[str], *, where: str) -> None:
    """Raises at the first unknown key, and suggests what may have been meant."""
    for key in table:
        if key not in known:
            raise ConfigError(f"unknown key `{key}` in [{where}]. {suggest(key, known)}")


def suggest(word: str, known: Iterable[str]) -> str:
    """One sentence that helps with a misspelt word.

    Example:
        >>> suggest("learning_rat", ["learning_rate", "epochs"])
        'Did you mean `learning_rate`?'
        >>> suggest("x", ["learning_rate", "epochs"])
        'Known: learning_rate, epochs.'
    """
    known = list(known)
    close = difflib.get_close_matches(word, known, n=1)
    return f"Did you mean `{close[0]}`?" if close else f"Known: {', '.join(known)}."


def _choice(table: Mapping[str, Any], *, where: str) -> Choice:
    """Takes the name out of a table; the rest are options of what the name stands for."""
    if not isinstance(table.get("name"), str):
        raise ConfigError(
            f"wanted a `name` in [{where}], but got: {', '.join(table) or 'nothing'}."
        )
    return Choice(table["name"], {key: value for key, value in table.items() if key != "name"})


def _typed(value: Any, hint: Any, *, key: str, where: str) -> Any:
    """Returns a TOML value as the type a setting asks for, or raises."""
    if get_origin(hint) in (Union, UnionType):
        if value is None and type(None) in get_args(hint):
            return None
        options = [option for option in get_args(hint) if option is not type(None)]
        hint = options[0]
    if get_origin(hint) is Literal:
        if value in get_args(hint):
            return value
        known = ", ".join(str(option) for option in get_args(hint))
        raise ConfigError(f"wanted `{key}` in [{where}] to be one of {known}, but got {value!r}.")
    if get_origin(hint) in (tuple, Sequence) and isinstance(value, list | tuple):
        return tuple(_typed(v, get_args(hint)[0], key=key, where=where) for v in value)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    wanted = list if get_origin(hint) in (tuple, Sequence) else hint
    if not isinstance(value, wanted) or (wanted is int and isinstance(value, bool)):
        raise ConfigError(
            f"wanted `{key}` in [{where}] to be {getattr(wanted, '__name__', wanted)}, "
            f"but got {value!r}. Change it in the recipe, or by --set {where}.{key}=…"
        )
    return value
