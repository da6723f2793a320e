"""The folder of a head: config.json, model.safetensors, space.json. Read without torch.

If known, fitted.npy contains marks of the items that the head was fitted on. A head with several
modalities has a subfolder for each, and a config.json with their names.
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

from nobackfill.errors import ConfigError, DataError
from nobackfill.vectors.space import Space

SCHEMA = 2
OR_REMOVE = "Or remove this file: then the fitted items are unknown."
JOINT_SCHEMA = 1  # schema of a config.json that names modalities
FILES = ("model.safetensors", "fitted.npy", "space.json", "config.json")

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
    """Contents of the folder of a head."""

    config: dict[str, Any]  # settings and record of the fit
    arrays: Arrays
    space: Space  # space of the mapped vectors
    fitted: NDArray[np.uint64] | None = None  # marks of the fitted items, if known


@dataclass(frozen=True)
class Joint:
    """Contents of the config.json of a head with several modalities."""

    names: tuple[str, ...]  # names of the modalities and of their subfolders
    source: str | None  # fingerprint of the space of the new vectors, if known
    space: Space  # space of the mapped vectors


def write_folder(folder: Path, stored: Stored) -> None:
    """Writes all files into an empty folder, config.json last: without it there is no head."""
    marks = {} if stored.fitted is None else {"fitted": stored.fitted}
    digest = {"fitted": fingerprint(marks)} if marks else {}
    config = plain({"schema": SCHEMA, **stored.config, **digest})
    save_file(dict(stored.arrays), folder / "model.safetensors")
    for name, array in marks.items():
        np.save(folder / f"{name}.npy", array, allow_pickle=False)
    _write_json(folder / "space.json", stored.space.to_json())
    _write_json(folder / "config.json", json.dumps(config, indent=2, allow_nan=False))


def write_joint(folder: Path, joint: Joint) -> None:
    """Writes config.json, after the subfolders of all modalities."""
    config = {
        "schema": JOINT_SCHEMA,
        "modalities": list(joint.names),
        "source": joint.source,
        "space": json.loads(joint.space.to_json()),
    }
    _write_json(folder / "config.json", json.dumps(config, indent=2, allow_nan=False))


def _write_json(path: Path, text: str) -> None:
    path.write_text(text + "\n", encoding="utf-8", newline="\n")


def read_joint(folder: Path) -> Joint | None:
    """Reads what `write_joint` wrote; returns None for a head without modalities."""
    config, path = _read_json(folder), folder / "config.json"
    if "modalities" not in config:
        return None
    _check_schema(folder, config, JOINT_SCHEMA)
    names = config["modalities"]
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise DataError(
            f"`modalities` in {path} must be a list of names, not {names!r}. Fit the head again."
        )
    space = Space.from_json(json.dumps(config.get("space")), where=str(path))
    return Joint(tuple(names), config.get("source"), space)


def read_folder(folder: Path) -> Stored:
    """Reads what `write_folder` wrote, and checks that the files belong together."""
    config = _read_config(folder)
    try:
        arrays = load_file(folder / "model.safetensors")
    except Exception as error:  # errors of safetensors and of the system
        raise _unreadable("weights", folder / "model.safetensors", error) from None
    if {name: array.shape for name, array in arrays.items()} != _shapes(config):
        raise DataError(
            f"{folder / 'config.json'} describes other weights: those in model.safetensors are of "
            f"another head. Fit the head again."
        )
    try:
        text = (folder / "space.json").read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        raise _unreadable("space of the head", folder / "space.json", error) from None
    space = Space.from_json(text, where=str(folder / "space.json"))
    if space.weights != fingerprint(arrays):
        raise DataError(
            f"{folder / 'space.json'} is of other weights than those in model.safetensors: they "
            f"were changed, or the files of two heads were mixed. Fit the head again."
        )
    return Stored(config, arrays, space, _read_marks(folder, config.get("fitted")))


def check_place(folder: Path, *, overwrite: bool) -> None:
    """Raises ConfigError if a head must not be written to a folder.

    A head is replaced with `overwrite` alone.
    """
    if folder.is_file():
        raise ConfigError(f"{folder} is a file. Choose a folder for the head.")
    if (folder / "config.toml").exists():
        raise ConfigError(f"{folder} holds a trained run. Choose another folder for the head.")
    if (folder / "config.json").exists() and not is_head(folder):
        raise ConfigError(
            f"{folder} holds something else: its config.json is not of a head. Choose another "
            f"folder."
        )
    if not overwrite and (there := [name for name in FILES if (folder / name).exists()]):
        contents = "a head" if "config.json" in there else " and ".join(there)
        raise ConfigError(
            f"{folder} holds {contents}. Replace it by --overwrite, or choose another folder."
        )


def is_head(folder: Path) -> bool:
    """Returns whether a folder has the config.json of a head."""
    try:
        return bool(_read_json(folder))
    except DataError:
        return False


def files_of(folder: Path) -> list[str]:
    """Returns the paths within a folder of the files of a head, config.json last."""
    below: Any = _read_json(folder).get("modalities", []) if is_head(folder) else []
    names = [str(name) for name in below] if isinstance(below, list) else []
    inside = [name for name in names if "/" not in name and name not in (".", "..")]
    parts = [name for name in inside if is_head(folder / name)]
    return [*(f"{name}/{file}" for name in parts for file in FILES), *FILES]


def fingerprint(arrays: Arrays) -> str:
    """Returns the SHA-256 of weights, independent of their order."""
    digest = hashlib.sha256()
    for name, array in sorted(arrays.items()):
        digest.update(name.encode() + array.tobytes())
    return digest.hexdigest()


def plain(value: Any) -> Any:
    """Converts a value to JSON types; NaN and infinity become None.

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
    """Returns the shape of each weight by name."""
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
        raise _no_head(folder, f"cannot be read ({error})") from None
    is_head_config = isinstance(config, dict) and ("new_dim" in config or "modalities" in config)
    if not is_head_config or "schema" not in config:
        raise _no_head(folder, "is of something else")
    return dict(config)


def _no_head(folder: Path, reason: str) -> DataError:
    return DataError(
        f"No head in {folder}: its config.json {reason}. Pass a folder that "
        f"`nobackfill fit -o FOLDER` or `save_pretrained` wrote."
    )


def _check_schema(folder: Path, config: dict[str, Any], version: int) -> None:
    if config["schema"] != version:
        raise DataError(
            f"The head in {folder} has schema version {config['schema']!r}; this release reads "
            f"version {version}. Upgrade nobackfill, or fit the head again."
        )


def _read_config(folder: Path) -> dict[str, Any]:
    config, path = _read_json(folder), folder / "config.json"
    if "modalities" in config:
        raise DataError(
            f"{folder} holds one for each of several modalities. Pass the subfolder of a "
            f"modality: {config['modalities']}."
        )
    _check_schema(folder, config, SCHEMA)
    wrong = [key for key, kind in KINDS.items() if not isinstance(config.get(key), kind)]
    if wrong:
        raise DataError(
            f"{', '.join(f'`{key}`' for key in wrong)} in {path} is missing or of another type. "
            f"Fit the head again."
        )
    return config


def _read_marks(folder: Path, digest: str | None) -> NDArray[np.uint64] | None:
    """Reads the marks of the fitted items; None if config.json has no digest of them."""
    path = folder / "fitted.npy"
    if digest is None or not path.exists():
        return None
    try:
        with path.open("rb") as file:
            marks = np.load(file, allow_pickle=False)
    except Exception as error:  # NumPy's errors about a header are of many kinds
        raise DataError(
            f"{_unreadable('marks of the fitted items', path, error)} {OR_REMOVE}"
        ) from None
    if fingerprint({"fitted": marks}) != digest:
        raise DataError(f"{path} is of another head. Fit the head again. {OR_REMOVE}")
    return np.asarray(marks, np.uint64)


def _unreadable(contents: str, path: Path, error: Exception) -> DataError:
    return DataError(f"The {contents} in {path} cannot be read ({error}). Fit the head again.")
