"""The folder of a head: config.json, model.safetensors, space.json. Read without torch.

Where it is known, fitted.npy has marks of the items that the head was fitted on.

A head with several modalities has such a folder for each, below one whose config.json names them.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from nobackfill.core.atomic_files import replacing, write_text
from nobackfill.errors import ConfigError, DataError
from nobackfill.vectors.space import Space

SCHEMA = 2
JOINT_SCHEMA = 1  # of a config.json that names modalities
FILES = ("config.json", "space.json", "fitted.npy", "model.safetensors")  # of a head

Arrays = Mapping[str, NDArray[Any]]  # weights by name

KINDS: dict[str, type] = {
    "parameters": dict,
    "new_dim": int,
    "old_dim": int,
    "hidden": int,
    "extra": int,
    "supervision": str,
    "notes": list,
    "progress": dict,
}


@dataclass(frozen=True, eq=False)
class Stored:
    """What the folder of a head holds.

    Attributes:
        config: How the head was made, and how that went.
        arrays: Its weights.
        space: Of the vectors that it makes.
        fitted: Marks of the items that it was fitted on, if known.
    """

    config: dict[str, Any]
    arrays: Arrays
    space: Space
    fitted: NDArray[np.uint64] | None = None


@dataclass(frozen=True)
class Joint:
    """What the folder of a head with several modalities tells.

    Attributes:
        names: Of the modalities, and of the folders below that hold a head each.
        source: Fingerprint of the space of the vectors that are mapped, if known.
        space: Of the vectors that are made.
    """

    names: tuple[str, ...]
    source: str | None
    space: Space


def write_folder(folder: Path, stored: Stored) -> None:
    """Writes all files, config.json last: without it the folder is no head."""
    marks = {} if stored.fitted is None else {"fitted": stored.fitted}
    told = {"fitted": fingerprint(marks)} if marks else {}
    config = plain({"schema": SCHEMA, **stored.config, **told})
    text = json.dumps(config, indent=2, allow_nan=False) + "\n"
    with replacing(folder / "model.safetensors") as unfinished:
        save_file(dict(stored.arrays), unfinished)
    for name, array in marks.items():
        with replacing(folder / f"{name}.npy") as unfinished, unfinished.open("wb") as file:
            np.save(file, array, allow_pickle=False)
    write_text(folder / "space.json", stored.space.to_json() + "\n")
    write_text(folder / "config.json", text)


def write_joint(folder: Path, joint: Joint) -> None:
    """Writes config.json, once the folders of all modalities are there."""
    config = {
        "schema": JOINT_SCHEMA,
        "modalities": list(joint.names),
        "source": joint.source,
        "space": json.loads(joint.space.to_json()),
    }
    write_text(folder / "config.json", json.dumps(config, indent=2, allow_nan=False) + "\n")


def read_joint(folder: Path) -> Joint | None:
    """Reads what `write_joint` wrote; None for the folder of a head without modalities."""
    config, path = _read_json(folder), folder / "config.json"
    if "modalities" not in config:
        return None
    _check_schema(folder, config, JOINT_SCHEMA)
    names = config["modalities"]
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise DataError(
            f"wanted the names of modalities in {path}, but got {names!r}. Fit the head again."
        )
    space = Space.from_json(json.dumps(config.get("space")), where=str(path))
    return Joint(tuple(names), config.get("source"), space)


def read_folder(folder: Path) -> Stored:
    """Reads what `write_folder` wrote; all must belong together."""
    config = _read_config(folder)
    try:
        arrays = load_file(folder / "model.safetensors")
    except Exception as error:  # the library raises of its own kind, as does the system
        raise DataError(
            f"wanted the weights of a head in {folder / 'model.safetensors'}, but they cannot be "
            f"read: {error}. Fit it again."
        ) from None
    if {name: array.shape for name, array in arrays.items()} != _shapes(config):
        raise DataError(
            f"wanted weights as {folder / 'config.json'} tells of them, but those in "
            f"model.safetensors are of another head. Fit it again."
        )
    space = _read_space(folder / "space.json")
    if space.weights != fingerprint(arrays):
        raise DataError(
            f"wanted the weights that {folder / 'space.json'} tells of, but those in "
            f"model.safetensors are others: they were changed, or the files of two heads were "
            f"mixed. Fit it again."
        )
    return Stored(config, arrays, space, _read_marks(folder, config.get("fitted")))


def check_place(folder: Path, *, overwrite: bool) -> None:
    """Refuses a place where a head would take that of something else.

    Args:
        folder: Where the head shall be.
        overwrite: Whether it may take the place of another head.
    """
    if folder.is_file():
        raise ConfigError(f"wanted a folder for the head, but {folder} is a file.")
    if (folder / "config.toml").exists():
        raise ConfigError(
            f"wanted an empty place for a head, but {folder} holds a trained run. Choose another "
            f"folder."
        )
    if (folder / "config.json").exists() and not is_head(folder):
        raise ConfigError(
            f"wanted an empty place for a head, but {folder} holds something else: its config.json "
            f"is not of a head. Choose another folder."
        )
    if not overwrite and (there := [name for name in FILES if (folder / name).exists()]):
        found = "a head" if "config.json" in there else " and ".join(there)
        raise ConfigError(
            f"wanted an empty place for a head, but {folder} holds {found}. Put the new head in "
            f"its place by --overwrite, or choose another folder."
        )


def is_head(folder: Path) -> bool:
    """Whether a folder has the config.json of a head."""
    try:
        return bool(_read_json(folder))
    except DataError:
        return False


def clear(folder: Path) -> None:
    """Removes a head, if one is there: of each map its files, and what is then empty."""
    below: Any = _read_json(folder).get("modalities", []) if is_head(folder) else []
    for name in FILES:
        (folder / name).unlink(missing_ok=True)
    for name in below if isinstance(below, list) else []:
        part = folder / str(name)
        if part.resolve().parent == folder.resolve() and is_head(part):
            clear(part)
            if not any(part.iterdir()):
                part.rmdir()


def fingerprint(arrays: Arrays) -> str:
    """The SHA-256 of weights, whatever their order."""
    digest = hashlib.sha256()
    for name, array in sorted(arrays.items()):
        digest.update(name.encode() + array.tobytes())
    return digest.hexdigest()


def plain(value: Any) -> Any:
    """The same for JSON, which knows no NaN, no infinity, no numbers of numpy and no devices.

    Example:
        >>> plain({"epochs": np.int64(3), "map": float("nan"), "notes": ("a",)})
        {'epochs': 3, 'map': None, 'notes': ['a']}
    """
    if isinstance(value, dict):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, float):
        return value if np.isfinite(value) else None
    return value if value is None or isinstance(value, bool | int) else str(value)


def _shapes(config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """The shape of each weight, by its name."""
    new, old, hidden, extra = (config[key] for key in ("new_dim", "old_dim", "hidden", "extra"))
    shapes: dict[str, tuple[int, ...]] = {"affine.weight": (old, new), "affine.bias": (old,)}
    if hidden:
        shapes |= {"inner.weight": (hidden, new), "inner.bias": (hidden,)}
        shapes |= {"outer.weight": (old, hidden), "outer.bias": (old,)}
    if extra:
        shapes |= {"extra.linear.weight": (extra, new), "extra.linear.bias": (extra,)}
        shapes |= {"extra.scale": (1,)}
    return shapes


def _read_json(folder: Path) -> dict[str, Any]:
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(
            f"wanted a head in {folder}, but its config.json cannot be read ({error}). Pass what "
            f"`nobackfill fit -o FOLDER` or `save_pretrained` wrote."
        ) from None
    is_one = isinstance(config, dict) and ("new_dim" in config or "modalities" in config)
    if not is_one or "schema" not in config:
        raise DataError(
            f"wanted a head in {folder}, but its config.json is of something else. Pass what "
            f"`nobackfill fit -o FOLDER` or `save_pretrained` wrote."
        )
    return dict(config)


def _check_schema(folder: Path, config: dict[str, Any], wanted: int) -> None:
    if config["schema"] != wanted:
        raise DataError(
            f"wanted a head of schema version {wanted} in {folder}, but it has version "
            f"{config['schema']!r}. Upgrade nobackfill, or fit it again."
        )


def _read_config(folder: Path) -> dict[str, Any]:
    config, path = _read_json(folder), folder / "config.json"
    if "modalities" in config:
        raise DataError(
            f"wanted a head of one modality, but {folder} holds one for each of several. Pass the "
            f"folder below it that is named like the modality: {config['modalities']}."
        )
    _check_schema(folder, config, SCHEMA)
    wrong = [key for key, kind in KINDS.items() if not isinstance(config.get(key), kind)]
    if wrong:
        raise DataError(
            f"wanted {', '.join(f'`{key}`' for key in wrong)} in {path}, but it is missing or of "
            f"another kind. Fit the head again."
        )
    return config


def _read_marks(folder: Path, told: str | None) -> NDArray[np.uint64] | None:
    """Marks of the items that a head was fitted on; None where its config.json tells of none."""
    path = folder / "fitted.npy"
    if told is None or not path.exists():
        return None
    try:
        with path.open("rb") as file:
            marks = np.load(file, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise DataError(
            f"wanted to know what a head was fitted on, but {path} cannot be read ({error}). Fit "
            f"it again, or remove this file: then nothing is known of that."
        ) from None
    if fingerprint({"fitted": marks}) != told:
        raise DataError(
            f"wanted to know what a head was fitted on, but {path} is of another head. Fit it "
            f"again, or remove this file: then nothing is known of that."
        )
    return np.asarray(marks, np.uint64)


def _read_space(path: Path) -> Space:
    try:
        return Space.from_json(path.read_text(encoding="utf-8"), where=str(path))
    except (OSError, UnicodeError) as error:
        raise DataError(
            f"wanted to know what made a head, but {path} cannot be read ({error}). Fit it again."
        ) from None
