"""Loading of weights from a file: all of them, or an error that names the others."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from nobackfill.core.atomic_files import find_path
from nobackfill.errors import DataError

PREFIXES = ("module.", "backbone.")  # of networks trained in parallel, or as part of a model
COUNTER = "num_batches_tracked"
SHOWN = 5  # number of names in errors


def load_weights(
    network: nn.Module,
    path: str | Path,
    *,
    without: Sequence[str] = ("fc.", "classifier.", "head."),
) -> None:
    """Loads a file of weights into a network, in place, and in the network's own dtype.

    A weight that is missing, left over, or of another shape is an error, with two exceptions: the
    weights of a classification head that the network does not have are dropped, and the counters
    `num_batches_tracked` may be absent.

    Args:
        network: Network to load into.
        path: A .safetensors file, or a state dict written by `torch.save` (.pt, .pth, .bin), also
            inside a checkpoint under "state_dict" or "model". The prefixes "module." and
            "backbone." of names are removed.
        without: Prefixes of the names of a classification head.
    """
    tensors = read_weights(find_path(path, "weights"))
    own = network.state_dict()
    # Remove each prefix, unless the network has it too, or two names would become the same.
    for prefix in PREFIXES:
        stripped = {name.removeprefix(prefix): value for name, value in tensors.items()}
        if len(stripped) == len(tensors) and not any(name.startswith(prefix) for name in own):
            tensors = stripped
    remedy = (
        "Choose the architecture (and its options) that the file was made with, or another file."
    )
    check_tensors(path, own, tensors, remedy, without=without)
    network.load_state_dict({k: t for k, t in tensors.items() if k in own}, strict=False)


def given_weights(architecture: str) -> str | None:
    """Returns the name of the file of an architecture's weights below NOBACKFILL_DATA, or None."""
    name = f"weights/{architecture}.safetensors"
    below = os.environ.get("NOBACKFILL_DATA")
    return name if below and (Path(below) / name).exists() else None


def check_tensors(
    path: str | Path,
    own: Mapping[str, Tensor],
    tensors: Mapping[str, Tensor],
    remedy: str,
    *,
    without: Sequence[str] = (),
) -> None:
    """Raises if the tensors of a file are not those of a network, by name and shape.

    Args:
        path: Path of the file, for errors.
        own: Tensors of the network. Counters `num_batches_tracked` may be missing in the file.
        tensors: Tensors of the file.
        remedy: What to do about an error.
        without: Prefixes of names that may be left over.
    """
    require_fit(
        path,
        {
            "missing": [
                f"{name} {shape_of(value)}"
                for name, value in own.items()
                if name not in tensors and not name.endswith(COUNTER)
            ],
            "left over": [
                f"{name} {shape_of(tensors[name])}"
                for name in sorted(tensors, key=lambda name: (name.endswith(COUNTER), name))
                if name not in own and not name.startswith(tuple(without))
            ],
            "of another shape": [
                f"{name} {shape_of(tensors[name])} where the network has {shape_of(value)}"
                for name, value in own.items()
                if name in tensors and tensors[name].shape != value.shape
            ],
        },
        remedy,
    )


def require_fit(path: str | Path, misfits: Mapping[str, Sequence[str]], remedy: str) -> None:
    """Raises if any weights, listed by the kind of misfit, do not fit the network."""
    if not any(misfits.values()):
        return
    kinds = []
    for kind, names in misfits.items():
        if names:
            more = f", and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
            kinds.append(f"{kind} ({len(names)}): {', '.join(names[:SHOWN])}{more}")
    raise DataError(f"The weights in {path} do not fit the network. {'; '.join(kinds)}. {remedy}")


def read_weights(path: Path) -> dict[str, Tensor]:
    """Reads the tensors of a .safetensors file or a state dict, without executing anything."""
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        content = torch.load(path, map_location="cpu", weights_only=True)
    except OSError as error:
        raise DataError(
            f"Cannot read weights from {path}: {error.strerror or error}. Check the path."
        ) from None
    except Exception as error:  # of many kinds, as either format may be broken anywhere
        reason = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
        raise DataError(
            f"Cannot read weights from {path}: {reason}. Pass a .safetensors file, or a state dict "
            f"that torch.load(…, weights_only=True) reads."
        ) from None
    for key in ("state_dict", "model"):
        if isinstance(content, Mapping) and isinstance(content.get(key), Mapping):
            content = content[key]
    if not isinstance(content, Mapping) or not content:
        raise DataError(
            f"{path} must contain a state dict, but contains {type(content).__name__}"
            f"{'' if content else ' without entries'}. Save `network.state_dict()`."
        )
    for name, value in content.items():
        if not isinstance(value, Tensor):
            raise DataError(
                f"{path} must contain a state dict, but its entry `{name}` is "
                f"{type(value).__name__}, no tensor. Save `network.state_dict()` alone."
            )
    return dict(content)


def shape_of(value: Tensor) -> str:
    """Returns the shape of a tensor for a message, such as "(3, 5)"."""
    return f"({', '.join(str(side) for side in value.shape)})"
