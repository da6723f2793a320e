"""A head on disk: one folder, or with several modalities one below it for each."""

from copy import deepcopy
from dataclasses import asdict, replace
from pathlib import Path

import torch

from nobackfill.core.config import suggest
from nobackfill.errors import ConfigError, DataError
from nobackfill.head.head import CompatibleHead
from nobackfill.head.multimodal import ModalityNetwork
from nobackfill.head.network import HeadNetwork
from nobackfill.head.schedule_progress import Progress
from nobackfill.head.storage import (
    Joint,
    Stored,
    check_place,
    clear,
    fingerprint,
    read_folder,
    read_joint,
    write_folder,
    write_joint,
)


def save_head(head: CompatibleHead, folder: Path) -> None:
    """Writes config.json, model.safetensors, space.json and maybe fitted.npy into a folder.

    Of several modalities these into a folder for each, and last a config.json that names them. A
    head that was there goes away; anything else is refused.

    Args:
        head: A fitted one.
        folder: Is made where there is none.
    """
    check_place(folder, overwrite=True)
    clear(folder)
    if isinstance(head.network_, ModalityNetwork):
        for name in head.modalities_:
            save_head(one_modality(head, name), folder / name)
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


def read_head(folder: Path, kind: type[CompatibleHead], *, device: str) -> CompatibleHead:
    """Reads what `save_head` wrote.

    Args:
        folder: Of a head, with one modality or several.
        kind: What to make of it.
        device: Where its weights go.
    """
    joint = read_joint(folder)
    if joint is None:
        return _read_one(folder, kind, device=device)
    heads = [_read_one(folder / name, kind, device=device) for name in joint.names]
    networks = [one.network_ for one in heads if isinstance(one.network_, HeadNetwork)]
    head = heads[0]
    head.network_ = ModalityNetwork(networks).eval()
    head.modalities_, head.source_, head.space_ = joint.names, joint.source, joint.space
    known = [one.fitted_ for one in heads]
    head.fitted_ = tuple(marks for (marks,) in known) if all(known) else ()
    if head.space_.weights != fingerprint(head.arrays()):
        raise DataError(
            f"wanted the weights that {folder / 'config.json'} tells of, but those in the folders "
            f"below are others: the files of two heads were mixed. Fit it again."
        )
    return head


def _read_one(folder: Path, kind: type[CompatibleHead], *, device: str) -> CompatibleHead:
    stored = read_folder(folder)
    config = stored.config
    try:
        head = kind(**{**config["parameters"], "device": device})
        known = config["progress"]
        closed = {name: _number(value) for name, value in known["closed"].items()}
        history = [_number(value) for value in known["history"]]
        head.progress_ = Progress(**{**known, "closed": closed, "history": history})
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"wanted to know how a head was made, but {folder / 'config.json'} tells it "
            f"in another way ({error}). Upgrade nobackfill, or fit it again."
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


def one_modality(head: CompatibleHead, name: str) -> CompatibleHead:
    """The head of one of the modalities alone, which shares its weights.

    Args:
        head: A fitted one.
        name: Of the modality.
    """
    network = head.network_
    if name not in head.modalities_:
        known = suggest(name, head.modalities_) if head.modalities_ else "It tells none apart."
        raise ConfigError(f"unknown modality `{name}` of this head. {known}")
    if not isinstance(network, ModalityNetwork):
        return head
    one = CompatibleHead(**head.get_params())
    place = head.modalities_.index(name)
    one.network_ = network.parts[place]
    one.modalities_, one.notes_ = (name,), head.notes_
    one.fitted_ = head.fitted_[place : place + 1]
    one.progress_, one.supervision_ = deepcopy(head.progress_), head.supervision_
    whole = one.network_.new_dim == network.new_dim
    one.source_ = head.source_ if whole else None  # of longer vectors
    one.space_ = replace(head.space_, weights=fingerprint(one.arrays()))
    return one
