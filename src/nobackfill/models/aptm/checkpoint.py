"""Reads published weights into `Aptm`: its own checkpoints, and those of a Swin alone."""

import warnings
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from nobackfill.core.atomic_files import find_path
from nobackfill.models.aptm.model import Aptm
from nobackfill.models.aptm.names import earlier_stage, published_name
from nobackfill.models.base import optional_package
from nobackfill.models.weights import read_weights, require_fit, shape_of

TABLE = "relative_position_bias_table"
DERIVED = ("relative_position_index", "attn_mask", "position_ids")  # computed, not learned
TEXT = "text_encoder."


def load_checkpoint(model: Aptm, path: str | Path) -> None:
    """Loads a checkpoint of APTM by its published names, in place; nothing in it is executed.

    Tables of relative positions for other windows are interpolated. Every weight must fit: those
    of `vision_encoder`, `text_encoder.bert` (also without `bert.`), `text_encoder.cls`,
    `vision_proj`, `text_proj`, `itm_head` and `temp`.

    Args:
        model: Model to load into.
        path: A .safetensors file, or a state dict written by `torch.save`, also under "model".
    """
    tensors = {_with_bert(name): value for name, value in _learned(path).items()}
    own = {name: value for name, value in model.state_dict().items() if not name.endswith(DERIVED)}
    _fill(own, {name: published_name(name) for name in own}, tensors, path)


def load_swin(swin: nn.Module, path: str | Path) -> None:
    """Loads a file of a Swin with timm's or the authors' names into timm's Swin, in place.

    Tables of relative positions for other windows are interpolated; a classifier is left out.
    """
    tensors = {
        name: value for name, value in _learned(path).items() if not name.startswith("head.")
    }
    own = {name: value for name, value in swin.state_dict().items() if not name.endswith(DERIVED)}
    of_authors = "layers.0.downsample.norm.weight" in tensors
    _fill(own, {name: earlier_stage(name) if of_authors else name for name in own}, tensors, path)


def _learned(path: str | Path) -> dict[str, Tensor]:
    """Reads the tensors of a file that are not computed from others."""
    tensors = read_weights(find_path(path, "weights"))
    return {
        name.removeprefix("module."): value
        for name, value in tensors.items()
        if not name.endswith(DERIVED)
    }


def _with_bert(name: str) -> str:
    """Adds the `bert.` that some checkpoints lack."""
    rest = name.removeprefix(TEXT)
    if rest == name or rest.startswith(("bert.", "cls.")):
        return name
    return f"{TEXT}bert.{rest}"


@torch.no_grad()
def _fill(
    own: Mapping[str, Tensor],
    names: Mapping[str, str],
    tensors: dict[str, Tensor],
    path: str | Path,
) -> None:
    """Copies tensors into a network's own, by the name of each in the file."""
    for name, value in own.items():
        found = tensors.get(names[name])
        if found is not None and name.endswith(TABLE) and found.shape != value.shape:
            tensors[names[name]] = _resized(found, value)
    require_fit(
        path,
        {
            "missing": [
                f"{names[name]} {shape_of(value)}"
                for name, value in own.items()
                if names[name] not in tensors
            ],
            "left over": sorted(tensors.keys() - set(names.values())),
            "of another shape": [
                f"{published} {shape_of(tensors[published])} where the network has "
                f"{shape_of(own[name])}"
                for name, published in names.items()
                if published in tensors and tensors[published].shape != own[name].shape
            ],
        },
        "Set the options of [model] and [text] that the file was made with, or choose another.",
    )
    for name, value in own.items():
        value.copy_(tensors[names[name]])


def _resized(table: Tensor, own: Tensor) -> Tensor:
    """Interpolates a table of relative positions if both windows are square; else returns it."""
    side, wanted = (int(len(each) ** 0.5) for each in (table, own))
    if side**2 != len(table) or table.shape[1:] != own.shape[1:]:
        return table
    timm = optional_package("timm", extra="vision")
    window = (wanted + 1) // 2
    with warnings.catch_warnings():  # of timm's interpolation
        warnings.simplefilter("ignore")
        resized: Tensor = timm.layers.resize_rel_pos_bias_table(
            table.float(), new_window_size=(window, window), new_bias_shape=tuple(own.shape)
        )
    return resized
