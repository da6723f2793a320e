"""Settings: frozen dataclasses, read from TOML, where an unknown key is an error."""

import difflib
import inspect
import json
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from nobackfill.errors import ConfigError

T = TypeVar("T")


@dataclass(frozen=True)
class Choice:
    """Something chosen by name, with its own options: a collection, a backbone, a method."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class OldConfig:
    """Where the old model is known from: a run folder, or a file of its vectors, or nowhere.

    Attributes:
        run: The folder of the old model's run.
        vectors: A file of its vectors, of the new training set.
        known_classes: How many classes, the first, the old model was trained on. A run knows; of a
            file, all count as known where this is not given.
        independent: A run folder, or a file of vectors, of a new model trained without constraint,
            for the methods that start from one.
    """

    run: str | None = None
    vectors: str | None = None
    known_classes: int | None = None
    independent: str | None = None

    def __post_init__(self) -> None:
        if self.run and self.vectors:
            raise ConfigError(
                "wanted the old model from one place, but [old] has both `run` and `vectors`. "
                "Remove one: a run knows its vectors and its classifier too."
            )


@dataclass(frozen=True)
class TrainConfig:
    """How long and how fast to train.

    Attributes:
        step: Which upgrade this is: the classes of `shares[step]` of the data are trained on, the
            last by default.
        epochs: Passes over the training set.
        batch_size: Items at a time.
        learning_rate: At the start; scaled down by `schedule`.
        schedule: "cosine" to 0, or "steps": a tenth from each of the `milestones` on.
        milestones: Epochs.
        optimizer: "sgd" or "adam".
        momentum: Of SGD.
        weight_decay: Of both.
        seed: Of the weights, the order of items and their augmentation.
        old_view: What the old model sees of a training item, where a method compares with it item
            by item: "test" (embedded once, as for a test) or "same" (the augmented image of the new
            model, embedded at every step).
    """

    step: int = -1
    epochs: int = 30
    batch_size: int = 256
    learning_rate: float = 0.1
    schedule: Literal["cosine", "steps"] = "cosine"
    milestones: tuple[int, ...] = (5, 10, 20)
    optimizer: Literal["sgd", "adam"] = "sgd"
    momentum: float = 0.9
    weight_decay: float = 5e-4
    seed: int = 0
    old_view: Literal["test", "same"] = "test"

    def __post_init__(self) -> None:
        limits = {
            "epochs": (1, 10**6),
            "batch_size": (2, 10**6),  # BatchNorm has nothing to say about one item
            "learning_rate": (0.0, 10.0**6),
            "momentum": (0.0, 1.0),
            "weight_decay": (0.0, 1.0),
            "seed": (0, 2**40),
        }
        for name, (low, high) in limits.items():
            if not low <= getattr(self, name) <= high:
                raise ConfigError(
                    f"wanted `{name}` in [train] from {low} to {high}, but got "
                    f"{getattr(self, name)}. Change it in the recipe, or by --set train.{name}=…"
                )


@dataclass(frozen=True)
class Recipe:
    """All that one training run is told."""

    data: Choice = Choice("glyphs")
    model: Choice = Choice("small")
    method: Choice = Choice("independent")
    old: OldConfig = OldConfig()
    train: TrainConfig = TrainConfig()


def read_recipe(path: Path, changes: Iterable[str] = ()) -> Recipe:
    """Reads a TOML file, with changes such as `train.epochs=3` on top."""
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(
            f"wanted a recipe at {path}, but {error.strerror or error}. Check the path."
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"wanted a recipe in TOML, but {path} is not: {error}.") from None
    return build_recipe(change_tables(tables, changes))


def change_tables(tables: Mapping[str, Any], changes: Iterable[str]) -> dict[str, Any]:
    """Returns the tables with each `table.key=value` applied; what is no TOML is taken as text.

    Example:
        >>> change_tables({"train": {"epochs": 30}}, ["train.epochs=3", "old.run=runs/old"])
        {'train': {'epochs': 3}, 'old': {'run': 'runs/old'}}
    """
    changed = {k: dict(v) if isinstance(v, Mapping) else v for k, v in tables.items()}
    for change in changes:
        key, equals, text = change.partition("=")
        table, dot, name = key.strip().partition(".")
        if not equals or not dot:
            raise ConfigError(f"wanted a change such as `train.epochs=3`, but got `{change}`.")
        try:
            value = tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            value = text
        if not isinstance(changed.setdefault(table, {}), dict):
            raise ConfigError(f"wanted a table [{table}], but got {table} = {changed[table]!r}.")
        changed[table][name] = value
    return changed


def build_recipe(tables: Mapping[str, Any]) -> Recipe:
    """Makes a recipe from the tables of a TOML file."""
    known = [item.name for item in fields(Recipe)]
    for name, table in tables.items():
        if name not in known:
            raise ConfigError(f"unknown table [{name}] in the recipe. {suggest(name, known)}")
        if not isinstance(table, dict):
            raise ConfigError(f"wanted a table [{name}], but got {name} = {table!r}.")
    parts: dict[str, Any] = {}
    for name in ("data", "model", "method"):
        if name in tables:
            parts[name] = _choice(tables[name], where=name)
    for name, kind in (("old", OldConfig), ("train", TrainConfig)):
        if name in tables:
            parts[name] = build(kind, tables[name], where=name)
    return Recipe(**parts)


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


def to_toml(recipe: Recipe) -> str:
    """Writes a recipe out so that `read_recipe` reads the same one. What is None is left out."""
    tables: dict[str, dict[str, Any]] = {}
    for item in fields(recipe):
        part = getattr(recipe, item.name)
        if isinstance(part, Choice):
            tables[item.name] = {"name": part.name, **part.options}
        else:
            tables[item.name] = {f.name: getattr(part, f.name) for f in fields(part)}
    lines = []
    for name, table in tables.items():
        lines.append(f"[{name}]")
        lines += [f"{key} = {_toml(value)}" for key, value in table.items() if value is not None]
        lines.append("")
    return "\n".join(lines)


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


def _toml(value: Any) -> str:
    """One TOML value: text, numbers, truth values and lists of these."""
    if isinstance(value, bool | str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, list | tuple):
        return f"[{', '.join(_toml(item) for item in value)}]"
    return repr(value)
