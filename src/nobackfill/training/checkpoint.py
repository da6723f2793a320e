"""Writes and reads `state.pt`: everything a training needs to continue after an epoch."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch
from safetensors import SafetensorError

from nobackfill.core.atomic_files import replacing, write_text
from nobackfill.errors import DataError
from nobackfill.training.loop import Epoch


@runtime_checkable
class Stateful(Protocol):
    """Model, optimiser, scaler or any other object with a state dict."""

    def state_dict(self) -> Any:
        """Returns the state."""

    def load_state_dict(self, state: Any, /) -> Any:
        """Restores a state."""


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
