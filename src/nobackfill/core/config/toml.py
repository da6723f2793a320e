"""Reading and writing of recipes as TOML files."""

import json
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from nobackfill.core.config.parse import build_recipe
from nobackfill.core.config.schema import Choice, Recipe
from nobackfill.core.suggest import suggest_path
from nobackfill.errors import ConfigError

# A change of a key of [old] replaces another key of the file.
REPLACES = {"run": "recipe", "vectors": "recipe", "independent": "independent_recipe"}


def read_recipe(path: Path, changes: Iterable[str] = ()) -> Recipe:
    """Reads the recipe of one model and applies changes such as `train.epochs=3`."""
    recipes = read_sequence(path, changes)
    if len(recipes) > 1:
        raise ConfigError(
            f"{path} is a sequence of {len(recipes)} models, not the recipe of one model. Train it "
            f"by `nobackfill train`, and pass the run folder of one of its models."
        )
    return recipes[0]


def read_sequence(path: Path, changes: Iterable[str] = ()) -> tuple[Recipe, ...]:
    """Reads the recipes of a sequence of upgrades; a file without [[sequence]] has one recipe.

    Each table of [[sequence]] changes the rest of the file for one model, the oldest first.
    `changes` are applied last, to all models.
    """
    changes, tables = list(changes), read_tables(path)
    steps = tables.pop("sequence", [{}])
    if not isinstance(steps, list) or not steps or not all(isinstance(s, dict) for s in steps):
        raise ConfigError(f"{path} has sequence = {steps!r}. Write tables [[sequence]] instead.")
    for key, replaced in REPLACES.items():
        if any(change.replace(" ", "").startswith(f"old.{key}=") for change in changes):
            tables.get("old", {}).pop(replaced, None)
    return tuple(build_recipe(change_tables(merge_tables(tables, step), changes)) for step in steps)


def read_tables(path: Path, extended_by: tuple[Path, ...] = ()) -> dict[str, Any]:
    """Reads the tables of a TOML file, merged into those of the file that it `extends`."""
    if path.resolve() in extended_by:
        raise ConfigError(f"The recipe {path} extends itself. Correct one of the `extends`.")
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(
            f"No recipe at {path}: the file does not exist. {suggest_path(path)}"
        ) from None
    except OSError as error:
        raise ConfigError(f"Cannot read the recipe {path}: {error.strerror or error}.") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"The recipe {path} is not valid TOML: {error}.") from None
    # Paths of other recipes are relative to this file.
    steps = tables.get("sequence", [])
    for part in (tables, *(steps if isinstance(steps, list) else [])):
        old = part.get("old", {}) if isinstance(part, dict) else {}
        for key in ("recipe", "independent_recipe"):
            if isinstance(old, dict) and isinstance(old.get(key), str):
                old[key] = str(path.parent / old[key])
    if "extends" not in tables:
        return tables
    base = tables.pop("extends")
    if not isinstance(base, str):
        raise ConfigError(f"`extends` in {path} must be a path, not {base!r}.")
    return merge_tables(read_tables(path.parent / base, (*extended_by, path.resolve())), tables)


def merge_tables(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Merges two sets of tables key by key; values of `above` win.

    A table with another `name` (of a collection, model or method) replaces the one below, because
    the options of that one do not apply.

    Example:
        >>> merge_tables({"train": {"epochs": 30, "step": 1}}, {"train": {"step": 0}})
        {'train': {'epochs': 30, 'step': 0}}
        >>> merge_tables({"method": {"name": "ndpp", "neighbors": 5}}, {"method": {"name": "bct"}})
        {'method': {'name': 'bct'}}
    """
    merged = dict(below)
    for key, value in above.items():
        base: Any = merged.get(key)
        both = isinstance(value, dict) and isinstance(base, dict)
        if both and value.get("name", base.get("name")) == base.get("name", value.get("name")):
            value = merge_tables(base, value)
        merged[key] = value
    return merged


def change_tables(tables: Mapping[str, Any], changes: Iterable[str]) -> dict[str, Any]:
    """Returns the tables with each `table.key=value` applied; a value that is not TOML is text.

    Example:
        >>> change_tables({"train": {"epochs": 30}}, ["train.epochs=3", "old.run=runs/old"])
        {'train': {'epochs': 3}, 'old': {'run': 'runs/old'}}
    """
    changed = {k: dict(v) if isinstance(v, Mapping) else v for k, v in tables.items()}
    for change in changes:
        key, equals, text = change.partition("=")
        *path, name = key.strip().split(".")
        if not equals or not path:
            raise ConfigError(f"The change `{change}` has no table. Write it as `train.epochs=3`.")
        try:
            value = tomllib.loads(f"value = {text}")["value"]
        except (ValueError, RecursionError):
            value = text.strip()
        # Copy the tables on the way to the key, so that `tables` stays unchanged.
        table: Any = changed
        for step in path:
            inner = table.get(step, {})
            if not isinstance(inner, dict):
                raise ConfigError(f"`{step}` must be a table [{step}], not {step} = {inner!r}.")
            table[step] = dict(inner)
            table = table[step]
        table[name] = value
    return changed


def to_toml(recipe: Recipe) -> str:
    """Writes a recipe as TOML that `read_recipe` reads as the same recipe, without None values."""
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
        pairs = [f"{_key(k)} = {_value(v)}" for k, v in table.items() if v is not None]
        lines += [f"[{name}]", *pairs, ""]
    return "\n".join(lines)


def _value(value: Any) -> str:
    """Writes a TOML value: text, a number, a boolean, a date, or a list or table of these."""
    if hasattr(value, "isoformat"):
        return str(value.isoformat())
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(k)} = {_value(v)}" for k, v in value.items()) + "}"
    if isinstance(value, bool | str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, value))}]"
    return repr(value)


def _key(key: str) -> str:
    """Writes a TOML key, quoted if necessary."""
    return key if key.replace("_", "").isalnum() and key.isascii() else json.dumps(key)
