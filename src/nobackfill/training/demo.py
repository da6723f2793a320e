"""The demo: one upgrade on built-in data, six models, and what a person should conclude."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Any, Protocol

import torch

from nobackfill.core.atomic_files import write_text
from nobackfill.core.config import Recipe, build_recipe, change_tables
from nobackfill.data.collection import Collection
from nobackfill.data.loader import Batch, Batches
from nobackfill.data.registry import make_collection
from nobackfill.evaluation.evaluate import Evaluation, evaluate
from nobackfill.evaluation.metrics import retrieval
from nobackfill.evaluation.verdict import ADVICE
from nobackfill.training.loop import Epoch
from nobackfill.training.pipeline import train_run
from nobackfill.training.run import Run
from nobackfill.training.run_vectors import validation_vectors
from nobackfill.vectors import Vectors

SHOWN = ("independent", "prototype_alignment", "bct", "ndpp", "odpp")


class Follow(Protocol):
    """Whoever shows the progress of one training."""

    def watch(self, batches: Batches) -> Iterator[Batch]:
        """Wraps the batches."""

    def follow(self, epochs: Iterable[Epoch]) -> None:
        """Trains to the end."""


@dataclass(frozen=True, eq=False)
class Demo:
    """What the demo came to.

    Attributes:
        folder: Where the runs are.
        collection: What they were trained on.
        runs: The old model's and each method's.
        evaluations: Of each method, against the old model.
        matrix: mAP of every query model (rows) on every gallery (columns), in the order of `runs`.
    """

    folder: Path
    collection: Collection
    runs: Mapping[str, Run]
    evaluations: Mapping[str, Evaluation]
    matrix: list[list[float]]

    @property
    def report(self) -> Path:
        """Where the report is."""
        return self.folder / "report.html"

    def summary(self) -> dict[str, Any]:
        """The numbers as they go into JSON."""
        return {
            "methods": {name: one.summary() for name, one in self.evaluations.items()},
            "models": list(self.runs),
            "matrix": self.matrix,
            "conclusion": conclude(self.evaluations),
            "report": str(self.report),
        }


def demo_recipe(name: str, old_run: Path, *, seed: int = 0, changes: Iterable[str] = ()) -> Recipe:
    """The recipe of one model of the demo.

    Args:
        name: "old", or the name of a method.
        old_run: The folder of the old model's run.
        seed: Of the glyphs and of the training. The old model starts from other weights than the
            new ones: from the same, even independent models would speak related spaces.
        changes: Such as `data.crowding=0.8`.
    """
    is_old = name == "old"
    tables: dict[str, dict[str, Any]] = {
        "data": {"name": "glyphs", "shares": [0.15, 1.0], "variation": 1.4, "seed": seed},
        "model": {"name": "small", "embedding_dim": 64},
        "method": {"name": "independent" if is_old else name},
        "old": {} if is_old else {"run": str(old_run)},
        "train": {
            "step": 0 if is_old else 1,
            "epochs": 12,
            "batch_size": 64,
            "seed": seed + (1000 if is_old else 0),
        },
    }
    return build_recipe(change_tables(tables, changes))


def run_demo(
    folder: Path,
    *,
    device: torch.device,
    show: Callable[[str, int], Follow],
    seed: int = 0,
    changes: Iterable[str] = (),
) -> Demo:
    """Trains the old model and five new ones, and compares them.

    A demo that was stopped goes on where it was; one that is done is only shown again.

    Args:
        folder: Where the runs go.
        device: What to train on.
        show: Given a model's name and its epochs, returns who shows its progress.
        seed: Of the glyphs and of the training.
        changes: To every recipe, such as `train.epochs=2`.
    """
    recipes = {
        name: demo_recipe(name, folder / "old", seed=seed, changes=changes)
        for name in ("old", *SHOWN)
    }
    collection = make_collection(recipes["old"].data)

    def train_one(name: str) -> None:
        shown = show(name, recipes[name].train.epochs)
        epochs = train_run(
            recipes[name],
            folder / name,
            device=device,
            resume=True,
            collection=collection,
            watch=shown.watch,
        )
        shown.follow(until(stopped, epochs))

    stopped = Event()
    cores = torch.get_num_threads()
    with one_thread():
        train_one("old")
        with ThreadPoolExecutor(cores) as pool:
            try:
                list(pool.map(train_one, SHOWN))
            except BaseException:
                stopped.set()  # the others end with their epoch, and can be resumed
                pool.shutdown(wait=True, cancel_futures=True)
                raise
    runs = {name: Run.open(folder / name) for name in recipes}
    vectors = {
        name: validation_vectors(run, collection, device=device) for name, run in runs.items()
    }
    demo = Demo(
        folder=folder,
        collection=collection,
        runs=runs,
        evaluations={
            name: evaluate(vectors["old"], vectors[name], independent=vectors["independent"])
            for name in SHOWN
        },
        matrix=[
            [_mean_average_precision(q, g) for g in vectors.values()] for q in vectors.values()
        ],
    )
    write_text(folder / "demo.json", json.dumps(demo.summary(), indent=2) + "\n")
    return demo


@contextmanager
def one_thread() -> Iterator[None]:
    """Keeps each operation to one thread for a while.

    For nets as small as these, one training per core is faster than all cores for one training;
    and threads that wait for each other crawl where something else wants the processor too.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def until(stopped: Event, epochs: Iterable[Epoch]) -> Iterator[Epoch]:
    """Passes epochs on until it is told to stop."""
    for epoch in epochs:
        yield epoch
        if stopped.is_set():
            return


def conclude(evaluations: Mapping[str, Evaluation]) -> list[str]:
    """Two sentences: what to do, and how far to trust it."""
    ceiling = evaluations["independent"].new_new
    assert ceiling is not None
    return advise(
        evaluations["independent"].old_old.mean_average_precision,
        ceiling.mean_average_precision,
        {
            name: one.new_old.mean_average_precision
            for name, one in evaluations.items()
            if name != "independent"
        },
    )


def advise(today: float, ceiling: float, upgrades: Mapping[str, float]) -> list[str]:
    """What `conclude` says of these mAPs.

    Args:
        today: Of old/old.
        ceiling: Of the independent model on its own gallery.
        upgrades: Of new/old, for each method.
    """
    best = max(upgrades, key=lambda name: upgrades[name])
    gain = upgrades[best] - today
    if gain > 0:
        share = (
            f", {100 * gain / (ceiling - today):.0f} % of what embedding the whole gallery again "
            f"with an unconstrained model would gain"
            if ceiling > today
            else ""
        )
        first = (
            f"Switch the queries to the model trained with {best}: on the vectors already stored, "
            f"mAP goes from {100 * today:.1f} to {100 * upgrades[best]:.1f} today{share}."
        )
    else:
        first = (
            f"{ADVICE['not compatible'].capitalize()}: the best new model ({best}) reaches "
            f"{100 * upgrades[best]:.1f} mAP on the stored vectors, no more than the "
            f"{100 * today:.1f} of today."
        )
    moved = {name: upgrades[name] - upgrades["prototype_alignment"] for name in ("ndpp", "odpp")}
    points = ", ".join(f"{name} {100 * change:+.1f}" for name, change in moved.items())
    if max(abs(change) for change in moved.values()) < 0.01:
        second = (
            f"Moving the prototypes changes new/old by little against leaving them in place "
            f"({points} points): on one seed of small drawn data less than a point is noise."
        )
    else:
        second = (
            f"Against leaving the prototypes in place, moving them changes new/old by {points} "
            f"points; this is one seed of small drawn data, so train more before you trust it."
        )
    return [first, second]


def _mean_average_precision(query: Vectors, gallery: Vectors) -> float:
    """Of one model's queries on another's gallery."""
    asks, searched = query.columns["is_query"], gallery.columns["is_gallery"]
    assert query.labels is not None
    assert gallery.labels is not None
    return retrieval(
        query.vectors[torch.from_numpy(asks)],
        gallery.vectors[torch.from_numpy(searched)],
        query.labels[asks],
        gallery.labels[searched],
    ).mean_average_precision
