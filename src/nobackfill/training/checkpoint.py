"""Writes and reads the files of a training: the state after an epoch, then the finished model."""

import json
import platform
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import nn

import nobackfill
from nobackfill.core.atomic_files import replacing, write_text
from nobackfill.core.config import to_toml
from nobackfill.core.device import device_name
from nobackfill.errors import DataError
from nobackfill.methods import Method
from nobackfill.training.loop import Epoch
from nobackfill.training.run import Lineage, Run

Stateful = nn.Module | torch.optim.Optimizer | torch.amp.GradScaler


def save_state(folder: Path, parts: Mapping[str, Stateful], history: list[Epoch]) -> None:
    """Writes `state.pt`, then `metrics.jsonl`."""
    state = {name: part.state_dict() for name, part in parts.items()}
    with resumable_write(f"the state after epoch {len(history)}", folder):
        with replacing(folder / "state.pt") as unfinished:
            torch.save({**state, "history": _lines(history)}, unfinished)
        write_metrics(folder, history)


def write_metrics(folder: Path, history: list[Epoch]) -> None:
    """Writes one line per epoch to `metrics.jsonl`."""
    if history:
        write_text(folder / "metrics.jsonl", "\n".join(_lines(history)) + "\n")


def _lines(history: list[Epoch]) -> list[str]:
    return [json.dumps(asdict(epoch)) for epoch in history]


@contextmanager
def resumable_write(content: str, folder: Path) -> Iterator[None]:
    """Reports a failed write, such as on a full disk, as an error that names --resume."""
    try:
        yield
    except (OSError, RuntimeError, SafetensorError, DataError) as error:
        raise DataError(
            f"Could not write {content} to {folder}: {str(error).splitlines()[0]} The last "
            f"complete state is intact. Free some disk space and continue with --resume."
        ) from None


def load_state(folder: Path, parts: Mapping[str, Stateful], device: torch.device) -> list[Epoch]:
    """Restores the state after the last finished epoch; returns the epochs so far."""
    path = folder / "state.pt"
    if not path.exists():
        return []
    try:
        state = torch.load(path, map_location=device, weights_only=True)
        for name, part in parts.items():
            part.load_state_dict(state[name])
    except Exception as error:
        raise DataError(
            f"Could not read {path} ({type(error).__name__}). Remove it and run again with "
            f"--resume: the training starts over."
        ) from None
    return [Epoch(**json.loads(line)) for line in state["history"]]


def save_weights(run: Run, model: nn.Module, method: Method) -> None:
    """Writes the finished model and method, then removes the state to resume from."""
    tensors = {f"model.{key}": value for key, value in model.state_dict().items()}
    tensors |= {f"method.{key}": value for key, value in method.state_dict().items()}
    tensors = {key: tensor.detach().cpu().contiguous() for key, tensor in tensors.items()}
    shared = Counter(tensor.data_ptr() for tensor in tensors.values())  # as BERT's words are
    tensors = {k: t.clone() if shared[t.data_ptr()] > 1 else t for k, t in tensors.items()}
    with resumable_write("the finished model", run.folder):
        with replacing(run.weights) as unfinished:
            save_file(tensors, unfinished)
        (run.folder / "state.pt").unlink(missing_ok=True)


def write_settings(run: Run, lineage: Lineage, device: torch.device) -> None:
    """Writes the recipe, the facts about the old model, and versions, date and hardware."""
    environment = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "nobackfill": nobackfill.__version__,
        "python": sys.version.split()[0],
        "torch": torch.__version__,
        "numpy": np.__version__,
        "platform": platform.platform(),
        "device": str(device),
        "device_name": device_name(device),
        "threads": torch.get_num_threads(),
    }
    write_text(run.folder / "config.toml", to_toml(run.recipe))
    write_text(run.folder / "lineage.json", json.dumps(asdict(lineage), indent=2))
    write_text(run.folder / "environment.json", json.dumps(environment, indent=2))
