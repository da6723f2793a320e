"""Weights from a file into a network: all of them, or an error that says which are not."""

import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from nobackfill.core.atomic_files import find_path
from nobackfill.errors import DataError

PREFIXES = ("module.", "backbone.")  # what training in parallel, or as part of a model, puts before
COUNTER = "num_batches_tracked"
SHOWN = 5


def load_weights(
    network: nn.Module,
    path: str | Path,
    *,
    without: Sequence[str] = ("fc.", "classifier.", "head."),
) -> None:
    """Loads a file of weights into a network, in place, and in the network's own dtype.

    Nothing is left to chance: a weight that is missing, left over, or of another shape is an error.
    Two things are let pass: of what the network does not have, the classification head, known by
    its name (`without`), is dropped; and the counters `num_batches_tracked` may be absent.

    Args:
        network: Which gets the weights.
        path: A .safetensors file, or a state dict written by `torch.save` (.pt, .pth, .bin), also
            inside a checkpoint under "state_dict" or "model". "module." and "backbone." before the
            names are removed.
        without: How the names of a head begin.
    """
    tensors = read_weights(find_path(path, "weights"))
    own = network.state_dict()
    for prefix in PREFIXES:
        tensors = _strip(tensors, prefix, own)
    missing = [
        f"{name} {_shape(value)}"
        for name, value in own.items()
        if name not in tensors and not name.endswith(COUNTER)
    ]
    left_over = [
        f"{name} {_shape(tensors[name])}"
        for name in sorted(tensors, key=lambda name: (name.endswith(COUNTER), name))
        if name not in own and not name.startswith(tuple(without))
    ]
    other_shape = [
        f"{name} {_shape(tensors[name])} where the network has {_shape(own[name])}"
        for name in own
        if name in tensors and tensors[name].shape != own[name].shape
    ]
    if missing or left_over or other_shape:
        raise DataError(
            f"wanted the weights of this very network in {path}, but they do not fit."
            + _listed("missing", missing)
            + _listed("left over", left_over)
            + _listed("of another shape", other_shape)
            + "\nChoose the architecture (and its options) that the file was made with, or another "
            "file."
        )
    network.load_state_dict({k: t for k, t in tensors.items() if k in own}, strict=False)


def given_weights(architecture: str) -> str | None:
    """The file of an architecture's weights that a user has put among the data, if there is one."""
    name = f"weights/{architecture}.safetensors"
    below = os.environ.get("NOBACKFILL_DATA")
    return name if below and (Path(below) / name).exists() else None


def read_weights(path: Path) -> dict[str, Tensor]:
    """The tensors of a .safetensors file or of a state dict, by name; nothing in it is executed."""
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        content = torch.load(path, map_location="cpu", weights_only=True)
    except OSError as error:
        raise DataError(
            f"wanted weights in {path}, but {error.strerror or error}. Check the path."
        ) from None
    except Exception as error:  # of many kinds, as either format may be broken anywhere
        raise DataError(
            f"wanted weights in {path}, but it cannot be read: {_first_line(error)}. Pass a "
            f".safetensors file, or a state dict that torch.load(…, weights_only=True) reads."
        ) from None
    return _state_dict(content, path)


def _state_dict(content: Any, path: Path) -> dict[str, Tensor]:
    for key in ("state_dict", "model"):
        if isinstance(content, Mapping) and isinstance(content.get(key), Mapping):
            content = content[key]
    if not isinstance(content, Mapping) or not content:
        raise DataError(
            f"wanted a state dict in {path}, but it holds {type(content).__name__}"
            f"{'' if content else ' without entries'}. Save `network.state_dict()`."
        )
    for name, value in content.items():
        if not isinstance(value, Tensor):
            raise DataError(
                f"wanted a state dict in {path}, but its entry `{name}` is "
                f"{type(value).__name__}, no tensor. Save `network.state_dict()` alone."
            )
    return dict(content)


def _strip(tensors: dict[str, Tensor], prefix: str, own: Collection[str]) -> dict[str, Tensor]:
    """Without the prefix, unless the network has it too, or two names would become one."""
    stripped = {name.removeprefix(prefix): value for name, value in tensors.items()}
    if len(stripped) < len(tensors) or any(name.startswith(prefix) for name in own):
        return tensors
    return stripped


def _listed(kind: str, items: list[str]) -> str:
    if not items:
        return ""
    more = f", and {len(items) - SHOWN} more" if len(items) > SHOWN else ""
    return f"\n  {kind} ({len(items)}): {', '.join(items[:SHOWN])}{more}"


def _shape(value: Tensor) -> str:
    return f"({', '.join(str(side) for side in value.shape)})"


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
