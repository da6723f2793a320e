"""Suites of several upgrades in a row: each model is compatible with the previous one."""

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import torch

from nobackfill.core.config import Recipe
from nobackfill.core.device import choose_device
from nobackfill.training.decoding import Decoding
from nobackfill.training.pipeline import train_run
from nobackfill.training.run import Run
from nobackfill.training.sequence import summarize_sequence
from nobackfill_bench.quality.suite import Results, Suite, Task, read_way
from nobackfill_bench.quality.trained import circumstances, folder_name

FIRST = "first"


@dataclass(frozen=True, kw_only=True)
class SequenceSuite(Suite):
    """Sequences by several methods; all methods of a seed start with the same first model.

    Attributes:
        recipe: Function from a name ("old" or a method), the previous run's folder, the seed, the
            data folder, the step of the sequence and changes to a recipe.
        steps: Number of models.
    """

    recipe: Callable[..., Recipe]
    steps: int = 3

    def stages(self, ways: Sequence[str]) -> list[list[str]]:
        """Trains the first model first; see `Suite`."""
        return [[FIRST], list(ways)]

    def run(self, task: Task) -> Results | None:
        """Trains one sequence, or continues it; see `Suite`."""
        torch.set_num_threads(1)
        folder = task.place.work / task.suite / folder_name(task.changes) / str(task.seed)
        device, start = choose_device(task.place.device), datetime.now(UTC)
        name, options = read_way(task.way)
        place = folder / folder_name([task.way])
        if name != FIRST and not (place / "1").exists():
            copy_folder(folder / FIRST / "1", place / "1")
        for number in range(1, 2 if name == FIRST else self.steps + 1):
            recipe = self.recipe(
                "old" if number == 1 else name,
                place / str(number - 1),
                seed=task.seed,
                data=task.place.data,
                step=number - 1,
                changes=[*([] if number == 1 else options), *task.changes],
            )
            decoding = Decoding(keep=True)
            run = place / str(number)
            for _ in train_run(recipe, run, device=device, resume=True, decoding=decoding):
                pass
        if name == FIRST:
            return None
        runs = [Run.open(place / str(number)) for number in range(1, self.steps + 1)]
        summary = summarize_sequence(place, runs, device=device)
        return {
            **circumstances(start, device, round((datetime.now(UTC) - start).total_seconds(), 1)),
            "matrix": summary.matrix,
            "ac": summary.ac,
            "am": summary.am,
        }


def copy_folder(source: Path, target: Path) -> None:
    """Copies a folder; it appears under its name when the copy is complete."""
    unfinished = target.with_name(f".{target.name}.part")
    shutil.rmtree(unfinished, ignore_errors=True)
    shutil.copytree(source, unfinished)
    unfinished.rename(target)
