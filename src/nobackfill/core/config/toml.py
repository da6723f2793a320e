"""Recipes as TOML files."""

import json
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from nobackfill.core.config.parse import build_recipe
from nobackfill.core.config.schema import Choice, Recipe
from nobackfill.errors import ConfigError

INSTEAD = {"run": "recipe", "vectors": "recipe", "independent": "independent_recipe"}  # of [old]


def read_recipe(path: Path, changes: Iterable[str] = ()) -> Recipe:
    """Reads the recipe of one model, with changes such as `train.epochs=3` on top."""
    recipes = read_sequence(path, changes)
    if len(recipes) > 1:
        raise ConfigError(
            f"wanted the recipe of one model, but {path} holds a sequence of {len(recipes)}. Train "
            f"it by `nobackfill train`, and pass the run folder of one of its models."
        )
    return recipes[0]


def read_sequence(path: Path, changes: Iterable[str] = ()) -> tuple[Recipe, ...]:
    """Reads the recipes of a sequence of upgrades: one, but for files with [[sequence]].

    Each table of [[sequence]] changes the rest of the file for one model, the oldest first;
    `changes` are on top of all.
    """
    changes, tables = list(changes), read_tables(path)
    steps = tables.pop("sequence", [{}])
    if not isinstance(steps, list) or not steps or not all(isinstance(s, dict) for s in steps):
        raise ConfigError(f"wanted tables [[sequence]] in {path}, but got sequence = {steps!r}.")
    for key, instead_of in INSTEAD.items():
        if any(change.replace(" ", "").startswith(f"old.{key}=") for change in changes):
            tables.get("old", {}).pop(instead_of, None)
    return tuple(build_recipe(change_tables(merge_tables(tables, step), changes)) for step in steps)


def read_tables(path: Path, above: tuple[Path, ...] = ()) -> dict[str, Any]:
    """The tables of a TOML file, and below them those of the file that it `extends`.

    Args:
        path: Of the file.
        above: The files that extend it.
    """
    if path.resolve() in above:
        raise ConfigError(f"wanted recipes that extend others, but {path} extends itself.")
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(
            f"wanted a recipe at {path}, but {error.strerror or error}. Check the path."
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"wanted a recipe in TOML, but {path} is not: {error}.") from None
    old = tables.get("old", {})
    for key in ("recipe", "independent_recipe"):
        if isinstance(old, dict) and isinstance(old.get(key), str):
            old[key] = str(path.parent / old[key])
    if "extends" not in tables:
        return tables
    base = tables.pop("extends")
    if not isinstance(base, str):
        raise ConfigError(f"wanted `extends` in {path} to be a path, but got {base!r}.")
    return merge_tables(read_tables(path.parent / base, (*above, path.resolve())), tables)


def merge_tables(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """One set of tables on top of another, key by key.

    A table that names another collection, model or method than the one below replaces it: its
    options are of something else.

    Example:
        >>> merge_tables({"train": {"epochs": 30, "step": 1}}, {"train": {"step": 0}})
        {'train': {'epochs': 30, 'step': 0}}
        >>> merge_tables({"method": {"name": "ndpp", "neighbors": 5}}, {"method": {"name": "bct"}})
        {'method': {'name': 'bct'}}
    """
    merged = dict(below)
    for key, value in above.items():
        under: Any = merged.get(key)
        both = isinstance(value, dict) and isinstance(under, dict)
        names = {table["name"] for table in (value, under) if "name" in table} if both else {1, 2}
        same = len(names) < 2
        merged[key] = merge_tables(under, value) if same else value
    return merged


def change_tables(tables: Mapping[str, Any], changes: Iterable[str]) -> dict[str, Any]:
    """Returns the tables with each `table.key=value` applied; what is no TOML is taken as text.

    Example:
        >>> change_tables({"train": {"epochs": 30}}, ["train.epochs=3", "old.run=runs/old"])
        {'train': {'epochs': 3}, 'old': {'run': 'runs/old'}}
    """
    changed = {k: dict(v) if isinstance(v, Mapping) else v for k, v in tables.items()}
    for change in changes:
        key, equals, text = change.partition("=")
        *tables_to, name = key.strip().split(".")
        if not equals or not tables_to:
            raise ConfigError(f"wanted a change such as `train.epochs=3`, but got `{change}`.")
        try:
            value = tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            value = text.strip()
        table: Any = changed
        for place in tables_to:
            below = table.get(place, {})
            if not isinstance(below, dict):
                raise ConfigError(f"wanted a table [{place}], but got {place} = {below!r}.")
            table[place] = dict(below)
            table = table[place]
        table[name] = value
    return changed


def to_toml(recipe: Recipe) -> str:
    """Writes a recipe out so that `read_recipe` reads the same one. What is None is left out."""
    tables: dict[str, dict[str, Any]] = {}
    for item in fields(recipe):
        part = getattr(recipe, item.name)
        if part is None or (item.name == "pairs" and recipe.text is None):
            continue
        if isinstance(part, Choice):
            tables[item.name] = {"name": part.name, **part.options}
        elif item.name == "tests":
            tables |= {f"tests.{k}": {"name": c.name, **c.options} for k, c in part.items()}
        elif isinstance(part, Mapping):
            tables |= {item.name: dict(part)} if part else {}
        else:
            tables[item.name] = {f.name: getattr(part, f.name) for f in fields(part)}
    lines = []
    for name, table in tables.items():
        lines.append(f"[{name}]")
        lines += [
            f"{_key(key)} = {_toml(value)}" for key, value in table.items() if value is not None
        ]
        lines.append("")
    return "\n".join(lines)


def _toml(value: Any) -> str:
    """One TOML value: text, numbers, truth values, and lists and tables of these."""
    if hasattr(value, "isoformat"):  # dates and times
        return str(value.isoformat())
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(k)} = {_toml(v)}" for k, v in value.items()) + "}"
    if isinstance(value, bool | str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, list | tuple):
        return f"[{', '.join(_toml(item) for item in value)}]"
    return repr(value)


def _key(key: str) -> str:
    """A TOML key, in quotes where it needs them."""
    return key if key.replace("_", "").isalnum() and key.isascii() else json.dumps(key)
