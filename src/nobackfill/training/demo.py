"""The demo: trains six models on built-in data, compares them and draws conclusions."""

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
from nobackfill.evaluation.verdict import advice_on, as_sentence
from nobackfill.training.embed import validation_vectors
from nobackfill.training.loop import Epoch
from nobackfill.training.pipeline import train_run
from nobackfill.training.run import Run
from nobackfill.vectors import Vectors

SHOWN = ("independent", "prototype_alignment", "bct", "ndpp", "odpp")


class Follow(Protocol):
    """Progress display of one training."""

    def watch(self, batches: Batches) -> Iterator[Batch]:
        """Wraps the batches."""

    def follow(self, epochs: Iterable[Epoch]) -> None:
        """Runs the training to its end."""


@dataclass(frozen=True, eq=False)
class Demo:
    """Results of the demo."""

    folder: Path
    collection: Collection
    runs: Mapping[str, Run]  # old model and each method, by name
    evaluations: Mapping[str, Evaluation]  # of each method against the old model
    matrix: list[list[float]]  # mAP of every query model (rows) on every gallery (columns)

    @property
    def report(self) -> Path:
        """Path of the report."""
        return self.folder / "report.html"

    def summary(self) -> dict[str, Any]:
        """Returns the results as a JSON object."""
        return {
            "methods": {name: each.summary() for name, each in self.evaluations.items()},
            "models": list(self.runs),
            "matrix": self.matrix,
            "conclusion": conclude(self.evaluations),
            "report": str(self.report),
        }


def demo_recipe(name: str, old_run: Path, *, seed: int = 0, changes: Iterable[str] = ()) -> Recipe:
    """Returns the recipe of "old" or of a method, with changes such as `data.crowding=0.8`."""
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
            "seed": seed,
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

    Finished epochs of an earlier call are not trained again. `show` returns the progress display of
    a model, from its name and number of epochs; `changes` apply to every recipe.
    """
    recipes = {
        name: demo_recipe(name, folder / "old", seed=seed, changes=changes)
        for name in ("old", *SHOWN)
    }
    collection = make_collection(recipes["old"].data)

    stopped = Event()

    def train_model(name: str) -> None:
        display = show(name, recipes[name].train.epochs)
        epochs = train_run(
            recipes[name],
            folder / name,
            device=device,
            resume=True,
            collection=collection,
            watch=display.watch,
        )
        display.follow(until(stopped, epochs))

    # Train the old model, then the others in parallel.
    cores = torch.get_num_threads()
    with one_thread():
        train_model("old")
        with ThreadPoolExecutor(cores) as pool:
            try:
                list(pool.map(train_model, SHOWN))
            except BaseException:
                stopped.set()  # the others stop after their epoch and can be resumed
                pool.shutdown(wait=True, cancel_futures=True)
                raise

    # Compare them.
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
    """Limits torch to one thread per operation: small models train faster with one per core."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def until(stopped: Event, epochs: Iterable[Epoch]) -> Iterator[Epoch]:
    """Yields epochs until the event is set."""
    for epoch in epochs:
        yield epoch
        if stopped.is_set():
            return


def conclude(evaluations: Mapping[str, Evaluation]) -> list[str]:
    """Returns two sentences: what to do, and how far to trust it."""
    independent = evaluations["independent"]
    assert independent.new_new is not None
    return advise(
        independent.old_old.mean_average_precision,
        independent.new_new.mean_average_precision,
        {name: evaluations[name].new_old.mean_average_precision for name in SHOWN[1:]},
    )


def advise(today: float, ceiling: float, upgrades: Mapping[str, float]) -> list[str]:
    """Returns the sentences for the mAP of old/old, of the independent model, and of new/old."""
    # Recommend the method with the highest new/old mAP.
    best = max(upgrades, key=lambda name: upgrades[name])
    gain = upgrades[best] - today
    if gain > 0:
        first = (
            f"Switch the queries to the model trained with {best}: on the stored vectors, mAP "
            f"rises from {100 * today:.1f} to {100 * upgrades[best]:.1f} today"
        )
        if ceiling > today:
            share = 100 * gain / (ceiling - today)
            first += f", {share:.0f} % of the gain of re-embedding with an unconstrained model"
        first += "."
    else:
        advice = as_sentence(advice_on("not compatible", gains_again=ceiling > today))
        first = (
            f"{advice} The best new model ({best}) reaches "
            f"{100 * upgrades[best]:.1f} mAP on the stored vectors; the old model has "
            f"{100 * today:.1f}."
        )

    # Compare moving the prototypes with leaving them in place.
    moved = {name: upgrades[name] - upgrades["prototype_alignment"] for name in ("ndpp", "odpp")}
    points = ", ".join(f"{name} {100 * change:+.1f}" for name, change in moved.items())
    if max(abs(change) for change in moved.values()) < 0.01:
        second = (
            f"Moving the prototypes changes new/old little ({points} points). On one seed of "
            f"small synthetic data, less than a point is noise."
        )
    else:
        second = (
            f"Moving the prototypes changes new/old by {points} points. This is one seed of small "
            f"synthetic data: train more before you trust it."
        )
    return [first, second]


def _mean_average_precision(query: Vectors, gallery: Vectors) -> float:
    """Computes the mAP of one model's queries on another's gallery."""
    is_query, is_gallery = query.columns["is_query"], gallery.columns["is_gallery"]
    assert query.labels is not None
    assert gallery.labels is not None
    return retrieval(
        query.vectors[torch.from_numpy(is_query)],
        gallery.vectors[torch.from_numpy(is_gallery)],
        query.labels[is_query],
        gallery.labels[is_gallery],
    ).mean_average_precision
