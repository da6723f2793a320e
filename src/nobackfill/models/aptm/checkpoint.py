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
from nobackfill.models.weights import check_tensors, read_weights

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
    tensors = {_with_bert(name): value for name, value in _read(path).items()}
    own = {published_name(name): value for name, value in _learned(model.state_dict()).items()}
    _fill(own, tensors, path)


def load_swin(swin: nn.Module, path: str | Path) -> None:
    """Loads a file of a Swin with timm's or the authors' names into timm's Swin, in place.

    Tables of relative positions for other windows are interpolated; a classifier is left out.
    """
    tensors = {name: value for name, value in _read(path).items() if not name.startswith("head.")}
    own = _learned(swin.state_dict())
    if "layers.0.downsample.norm.weight" in tensors:  # names of the authors
        own = {earlier_stage(name): value for name, value in own.items()}
    _fill(own, tensors, path)


def _read(path: str | Path) -> dict[str, Tensor]:
    """Reads the learned tensors of a file."""
    tensors = read_weights(find_path(path, "weights"))
    return _learned({name.removeprefix("module."): value for name, value in tensors.items()})


def _learned(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Leaves out tensors that are computed from others."""
    return {name: value for name, value in tensors.items() if not name.endswith(DERIVED)}


def _with_bert(name: str) -> str:
    """Adds the `bert.` that some checkpoints lack."""
    rest = name.removeprefix(TEXT)
    if rest == name or rest.startswith(("bert.", "cls.")):
        return name
    return f"{TEXT}bert.{rest}"


@torch.no_grad()
def _fill(own: Mapping[str, Tensor], tensors: dict[str, Tensor], path: str | Path) -> None:
    """Copies the tensors of a file into those of a network, by their names in the file."""
    for name, value in own.items():
        table = tensors.get(name)
        if table is not None and name.endswith(TABLE) and table.shape != value.shape:
            tensors[name] = _resized(table, value)
    remedy = "Set the options of [model] and [text] that the file was made with, or choose another."
    check_tensors(path, own, tensors, remedy)
    for name, value in own.items():
        value.copy_(tensors[name])


def _resized(table: Tensor, own: Tensor) -> Tensor:
    """Interpolates a table of relative positions if both windows are square; else returns it."""
    side, own_side = (int(len(rows) ** 0.5) for rows in (table, own))
    if side**2 != len(table) or table.shape[1:] != own.shape[1:]:
        return table
    timm = optional_package("timm", extra="vision")
    window = (own_side + 1) // 2
    with warnings.catch_warnings():  # of timm's interpolation
        warnings.simplefilter("ignore")
        resized: Tensor = timm.layers.resize_rel_pos_bias_table(
            table.float(), new_window_size=(window, window), new_bias_shape=tuple(own.shape)
        )
    return resized
