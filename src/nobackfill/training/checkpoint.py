"""What is needed to go on after the last finished epoch, as one file."""

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
class Keeper(Protocol):
    """Anything whose state can be taken and put back: models, optimisers, scalers."""

    def state_dict(self) -> Any:
        """Returns the state."""

    def load_state_dict(self, state: Any, /) -> Any:
        """Puts a state back."""


def save_state(folder: Path, keepers: Mapping[str, Keeper], history: list[Epoch]) -> None:
    """Writes what is needed to go on, then what people read."""
    state = {name: keeper.state_dict() for name, keeper in keepers.items()}
    with that_can_be_resumed(f"the state after epoch {len(history)}", folder):
        with replacing(folder / "state.pt") as unfinished:
            torch.save({**state, "history": _lines(history)}, unfinished)
        write_metrics(folder, history)


def write_metrics(folder: Path, history: list[Epoch]) -> None:
    """Writes a line for each epoch so far, for people."""
    if history:
        write_text(folder / "metrics.jsonl", "\n".join(_lines(history)) + "\n")


def _lines(history: list[Epoch]) -> list[str]:
    return [json.dumps(asdict(epoch)) for epoch in history]


@contextmanager
def that_can_be_resumed(what: str, folder: Path) -> Iterator[None]:
    """Says of a write that failed, as on a full disk, that nothing is lost."""
    try:
        yield
    except (OSError, RuntimeError, SafetensorError, DataError) as error:
        raise DataError(
            f"wanted to keep {what} in {folder}, but it could not be written: "
            f"{str(error).splitlines()[0]} The last state that was written whole is untouched. "
            f"Make room on the disk, and go on with --resume."
        ) from None


def load_state(folder: Path, keepers: Mapping[str, Keeper], device: torch.device) -> list[Epoch]:
    """Brings everything to where the last finished epoch left it; returns the epochs so far."""
    path = folder / "state.pt"
    if not path.exists():
        return []
    try:
        state = torch.load(path, map_location=device, weights_only=True)
        for name, keeper in keepers.items():
            keeper.load_state_dict(state[name])
    except Exception as error:
        raise DataError(
            f"wanted to go on from {path}, but it cannot be read "
            f"({type(error).__name__}). Remove it and run again with --resume: the training "
            f"starts over."
        ) from None
    return [Epoch(**json.loads(line)) for line in state["history"]]
