"""Suites that train models: an old one for each seed, and a new one with every method."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import torch

from nobackfill.core.config import Recipe
from nobackfill.core.device import choose_device, device_name
from nobackfill.evaluation.geometry import cosine_spread
from nobackfill.methods.prototypes import class_means
from nobackfill.training.decoding import Decoding
from nobackfill.training.pipeline import train_run
from nobackfill.training.run import Run
from nobackfill.vectors import load_vectors
from nobackfill_bench.quality.suite import Results, Suite, Task, read_way

LONGEST = 150  # characters of a folder name before a hash replaces the rest
MEASURED = ("old_old", "new_old", "new_new")
RECALLS = (1, 5, 10)


@dataclass(frozen=True, kw_only=True)
class TrainedSuite(Suite):
    """Trains old models first, then all others in parallel, then BT2, which needs `independent`.

    Attributes:
        recipe: Function from a name ("old" or a method), the old run's folder, the seed, the data
            folder and changes to a recipe.
        embedding_dim: Dimension of the models.
        train_classes: Number of training classes of the new models.
    """

    recipe: Callable[..., Recipe]
    embedding_dim: int
    train_classes: int

    def stages(self, ways: Sequence[str]) -> list[list[str]]:
        """See `Suite`."""
        return stages(ways)

    def run(self, task: Task) -> Results | None:
        """Trains one model in its folder, or continues it; see `Suite`."""
        torch.set_num_threads(1)
        folder = task.place.work / task.suite / folder_name(task.changes) / str(task.seed)
        name, options = read_way(task.way)
        is_old = name in ("old", "cores_old")
        recipe = self.recipe(
            "old" if is_old else name,
            folder / "old",
            seed=task.seed,
            data=task.place.data,
            changes=[
                *own_changes(name, folder, self.embedding_dim, self.train_classes),
                *([] if is_old else options),
                *task.changes,
            ],
        )
        start, device = datetime.now(UTC), choose_device(task.place.device)
        place = folder / folder_name([task.way])
        was_there = (place / "model.safetensors").exists()
        decoding = Decoding(keep=True)
        for _ in train_run(recipe, place, device=device, resume=True, decoding=decoding):
            pass
        if is_old:
            return None
        seconds = (datetime.now(UTC) - start).total_seconds()
        result = json.loads((place / "evaluation.json").read_text(encoding="utf-8"))
        return {
            **circumstances(start, device, None if was_there else round(seconds, 1)),
            "epochs": recipe.train.epochs,
            **numbers(result),
            "spread": prototype_spread(Run.open(place)),
            "tests": {name: numbers(test) for name, test in result.get("tests", {}).items()},
            **({"modality_gap": gap} if (gap := result.get("modality_gap")) else {}),
        }


def stages(ways: Sequence[str]) -> list[list[str]]:
    """Returns stages of models that can be trained in parallel.

    Example:
        >>> stages(["bt2", "ndpp"])
        [['old'], ['independent', 'ndpp'], ['bt2']]
    """
    names = {read_way(way)[0] for way in ways}
    first = ["old", *(["cores_old"] if "cores" in names else [])]
    last = [way for way in ways if read_way(way)[0] == "bt2"]
    second = [way for way in ways if way not in last]
    if last and "independent" not in second:
        second = ["independent", *second]
    return [stage for stage in (first, second, last) if stage]


def own_changes(name: str, folder: Path, embedding_dim: int, train_classes: int) -> list[str]:
    """Returns the additional changes that BT2 and CoReS need."""
    if name == "bt2":
        return [
            f"model.embedding_dim={2 * embedding_dim}",
            f"old.independent={folder / 'independent'}",
        ]
    corners = [f"model.embedding_dim={train_classes - 1}", "model.head=no_norm"]
    if name == "cores":
        return [*corners, f"old.run={folder / 'cores_old'}"]
    if name == "cores_old":
        return [*corners, "method.name=cores"]
    return []


def folder_name(parts: Sequence[str]) -> str:
    """Returns a folder name for changes, with safe characters and a hash in place of a long rest.

    Example:
        >>> folder_name(["data.shares=[0.3,1.0]"])
        'data.shares=_0.3_1.0_'
        >>> folder_name([])
        'as_it_is'
    """
    allowed = "".join(
        letter if letter.isalnum() or letter in ".=-_" else "_"
        for letter in "+".join(parts) or "as_it_is"
    )
    if len(allowed) <= LONGEST:
        return allowed
    return f"{allowed[:LONGEST]}-{sha256('+'.join(parts).encode()).hexdigest()[:16]}"


def circumstances(start: datetime, device: torch.device, seconds: float | None) -> Results:
    """Returns the date, the device and the duration of a run."""
    date = start.isoformat(timespec="seconds")
    return {"date": date, "device": device_name(device), "seconds": seconds}


def numbers(result: Mapping[str, Any]) -> Results:
    """Returns the numbers of an evaluation that a result stores."""
    return {
        **{key: result[key] for key in MEASURED},
        **{
            f"recall_at_{k}": {
                key: result["metrics"].get(key, {}).get(f"recall_at_{k}") for key in MEASURED
            }
            for k in RECALLS
        },
        "lost": result["flips"][0]["negative"],
        "verdict": result["verdict"],
    }


def prototype_spread(run: Run) -> float | None:
    """Computes the spread of the cosines between the new class means of the validation items.

    See `cosine_spread`. None if there are no classes.
    """
    path = run.folder / "validation.parquet"
    if not path.exists() or (vectors := load_vectors(path)).labels is None:
        return None
    _, classes = np.unique(vectors.labels, return_inverse=True)
    means = class_means(vectors.vectors.float(), torch.from_numpy(classes), int(classes.max()) + 1)
    return cosine_spread(means)
