"""Saves and loads heads: one folder, or a subfolder for each of several modalities."""

from copy import deepcopy
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from nobackfill.core.atomic_folders import replacing_folder
from nobackfill.core.suggest import suggest
from nobackfill.errors import ConfigError, DataError
from nobackfill.head.network import HeadNetwork, ModalityNetwork
from nobackfill.head.schedule import Progress
from nobackfill.head.storage import (
    Joint,
    Stored,
    check_place,
    files_of,
    fingerprint,
    read_folder,
    read_joint,
    write_folder,
    write_joint,
)

if TYPE_CHECKING:
    from nobackfill.head.head import CompatibleHead


def save_head(head: "CompatibleHead", folder: Path) -> None:
    """Writes config.json, model.safetensors, space.json and, if known, fitted.npy into a folder.

    Several modalities get a subfolder each, and last a config.json with their names. A head in the
    folder is replaced in one step, and other files there are kept; a folder of something else is
    an error.
    """
    check_place(folder, overwrite=True)
    with replacing_folder(folder, files_of(folder)) as unfinished:
        _write(head, unfinished)


def _write(head: "CompatibleHead", folder: Path) -> None:
    """Writes a head into an empty folder."""
    if isinstance(head.network_, ModalityNetwork):
        for name in head.modalities_:
            (folder / name).mkdir()
            _write(extract_modality(head, name), folder / name)
        write_joint(folder, Joint(head.modalities_, head.source_, head.space_))
        return
    arrays = head.arrays()
    config = {
        "parameters": head.get_params(),
        "new_dim": head.network_.new_dim,
        "old_dim": head.network_.old_dim,
        "hidden": len(arrays.get("inner.bias", ())),
        "extra": len(arrays.get("extra.linear.bias", ())),
        "source": head.source_,
        "supervision": head.supervision_,
        "notes": list(head.notes_),
        "progress": asdict(head.progress_),
    }
    if head.modalities_:
        config["modality"] = head.modalities_[0]
    fitted = head.fitted_[0] if head.fitted_ else None
    write_folder(folder, Stored(config, arrays, head.space_, fitted))


def read_head(folder: Path, kind: "type[CompatibleHead]", *, device: str) -> "CompatibleHead":
    """Reads a head that `save_head` wrote."""
    joint = read_joint(folder)
    if joint is None:
        return _read_one(folder, kind, device=device)
    heads = [_read_one(folder / name, kind, device=device) for name in joint.names]
    networks = [part.network_ for part in heads if isinstance(part.network_, HeadNetwork)]
    head = heads[0]
    head.network_ = ModalityNetwork(networks).eval()
    head.modalities_, head.source_, head.space_ = joint.names, joint.source, joint.space
    fitted = [part.fitted_ for part in heads]
    head.fitted_ = tuple(marks for (marks,) in fitted) if all(fitted) else ()
    if head.space_.weights != fingerprint(head.arrays()):
        raise DataError(
            f"The weights in the subfolders do not belong to {folder / 'config.json'}: the files "
            f"of two heads were mixed. Fit the head again."
        )
    return head


def _read_one(folder: Path, kind: "type[CompatibleHead]", *, device: str) -> "CompatibleHead":
    stored = read_folder(folder)
    config = stored.config
    try:
        head = kind(**{**config["parameters"], "device": device})
        record = config["progress"]
        closed = {name: _number(value) for name, value in record["closed"].items()}
        history = [_number(value) for value in record["history"]]
        head.progress_ = Progress(**{**record, "closed": closed, "history": history})
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"The settings in {folder / 'config.json'} are not those of a head ({error}). Upgrade "
            f"nobackfill, or fit the head again."
        ) from None
    network = HeadNetwork(
        config["new_dim"],
        config["old_dim"],
        hidden=config["hidden"],
        dropout=head.dropout,
        extra=config["extra"],
    )
    network.load_state_dict(
        {name: torch.from_numpy(array) for name, array in stored.arrays.items()}
    )
    head.network_ = network.to(device).eval()
    head.supervision_, head.notes_ = config["supervision"], tuple(config["notes"])
    head.space_, head.source_ = stored.space, config.get("source")
    head.modalities_ = (config["modality"],) if "modality" in config else ()
    head.fitted_ = () if stored.fitted is None else (stored.fitted,)
    return head


def _number(value: float | None) -> float:
    return float("nan") if value is None else float(value)


def extract_modality(head: "CompatibleHead", name: str) -> "CompatibleHead":
    """Returns the head of a single modality; it shares the weights."""
    network = head.network_
    if name not in head.modalities_:
        hint = suggest(name, head.modalities_) if head.modalities_ else "It has one map for all."
        raise ConfigError(f"unknown modality `{name}` of this head. {hint}")
    if not isinstance(network, ModalityNetwork):
        return head
    part = type(head)(**head.get_params())
    place = head.modalities_.index(name)
    part.network_ = network.parts[place]
    part.modalities_, part.notes_ = (name,), head.notes_
    part.fitted_ = head.fitted_[place : place + 1]
    part.progress_, part.supervision_ = deepcopy(head.progress_), head.supervision_
    whole = part.network_.new_dim == network.new_dim
    part.source_ = head.source_ if whole else None  # it is of longer vectors
    part.space_ = replace(head.space_, weights=fingerprint(part.arrays()))
    return part
