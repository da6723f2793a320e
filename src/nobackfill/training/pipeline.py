"""One upgrade from recipe to verdict: train, embed what is searched, evaluate."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from nobackfill.core import distributed
from nobackfill.core.atomic_files import write_text
from nobackfill.core.config import Choice, ImagesConfig, Recipe, read_sequence, suggest
from nobackfill.core.distributed import is_main, wait
from nobackfill.core.locks import in_use
from nobackfill.data.collection import Collection
from nobackfill.data.registry import make_collection
from nobackfill.errors import ConfigError
from nobackfill.evaluation.by_modality import evaluate_modalities
from nobackfill.evaluation.evaluate import Evaluation, evaluate
from nobackfill.evaluation.protocols import protocol_named
from nobackfill.models.embed import Watch, to_vectors
from nobackfill.training.loop import Epoch
from nobackfill.training.old_model import check_old, know_old_space, lineage_of, old_model_for
from nobackfill.training.run import Lineage, Run
from nobackfill.vectors import Vectors, load_vectors


@dataclass(frozen=True)
class Decoding:
    """How image files are read: nothing of a result depends on it.

    Attributes:
        workers: How many processes decode.
        keep: Whether decoded images stay in memory.
    """

    workers: int = 0
    keep: bool = False

    def open(self, choice: Choice, images: ImagesConfig) -> Collection:
        """Opens a collection."""
        return make_collection(choice, images, workers=self.workers, keep=self.keep)


AS_IT_COMES = Decoding()


def decode_with(workers: int | None, *, keep: bool = False) -> Decoding:
    """As many processes as are asked for, or as there are cores for each process of training."""
    if workers is None:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        workers = min(16, (cores or 1) // int(os.environ.get("LOCAL_WORLD_SIZE", "1")))
    return Decoding(workers, keep)


def train_run(
    recipe: Recipe,
    folder: Path,
    *,
    device: torch.device,
    resume: bool = False,
    collection: Collection | None = None,
    decoding: Decoding = AS_IT_COMES,
    watch: Watch = iter,
) -> Iterator[Epoch]:
    """Trains a recipe in a folder, and leaves the vectors of what is searched beside the model.

    Yields after each epoch. Where the recipe names an old run, the folder gets `evaluation.json`.
    Under torchrun all processes train and embed, and the first searches and writes.
    """
    run = Run.start(recipe, folder, resume=resume)
    wait()  # until all have seen what is there
    recipe = run.recipe
    collection = collection or decoding.open(recipe.data, recipe.images)
    tests = {name: decoding.open(one, recipe.images) for name, one in recipe.tests.items()}
    tests = {
        name: one for name, one in {"": collection, **tests}.items() if is_searched(one, recipe)
    }
    if not run.finished:
        check_old(recipe)
        collection.training_rows(recipe.train.step)  # raises where there is nothing to train on
        for one in tests.values() if recipe.text is not None else ():
            one.captions_of(one.validation_rows())  # raises where one is missing
        with in_use(folder) if is_main() else nullcontext():
            run = Run.start(recipe, folder, resume=resume)  # as it is now that it is ours
            wait()  # until all have looked, for the first will write
            yield from run.train(
                collection,
                know_old_space(recipe, collection, device=device, watch=watch),
                device=device,
                lineage=lineage_of(recipe, collection),
                old_model=old_model_for(recipe, device),
                watch=watch,
            )
    for name, one in tests.items():
        make_vectors(run, one, test=name, device=device, watch=watch)
    if is_main() and recipe.old.run is not None and tests:
        with distributed.alone():
            save_evaluation(folder, search_all(run, tests, device=device))
    wait()


def is_searched(collection: Collection, recipe: Recipe) -> bool:
    """Whether anything asks in it: images for images, or, of a model that reads them, texts."""
    if recipe.text is None:
        return collection.is_searched
    return collection.captions is not None and len(collection.validation_rows()) > 0


def search_all(
    run: Run, tests: Mapping[str, Collection], *, device: torch.device
) -> dict[str, Any]:
    """Compares a finished run with its old run on all that its recipe searches.

    The first test's numbers stand at the top, those of others, and of other ways to count, below
    `tests`. Several tests have a `mean`, of the P-scores too, as the paper has it.
    """
    if run.recipe.text is not None:
        return search_directions(run, tests, device=device)
    results = {}
    for name, one in tests.items():
        results[name] = evaluate_run(run, one, test=name, device=device)
        for level in sorted(one.ground_truth.keys() - {one.level}):
            results[f"{name}_{level}".removeprefix("_")] = evaluate_run(
                run, one, test=name, level=level, device=device
            )
    first, *others = results
    summary = results[first].summary()
    if others:
        summary["tests"] = {name: results[name].summary() for name in others}
    if len(tests) > 1:
        summary["mean"] = mean_over([results[name].summary() for name in tests])
    return summary


def search_directions(
    run: Run, tests: Mapping[str, Collection], *, device: torch.device
) -> dict[str, Any]:
    """The same for a model of images and texts: from texts to images first, if that can be asked.

    Beside old/old, new/old and new/new each direction has `old_new`, old queries on the new
    gallery; `modality_gap` tells how far images and texts are apart.
    """
    results, gaps, notes = dict[str, dict[str, Any]](), dict[str, Any](), list[str]()
    for name, one in tests.items():
        found = evaluate_modalities(**pair_of(run, one, test=name, device=device)).summary()
        directions = found["directions"]
        main = "_to_".join(main_direction(run, one) or ())
        for direction in sorted(directions, key=lambda direction: direction != main):
            results["_".join(filter(None, (name, direction)))] = directions[direction]
        gaps[name or "data"] = found["modality_gap"]
        notes += found["notes"]
    first, *others = results
    return {
        **results[first],
        "direction": first,
        "notes": notes,
        "tests": {name: results[name] for name in others},
        "modality_gap": gaps if len(gaps) > 1 else gaps[next(iter(gaps))],
    }


def mean_over(summaries: Sequence[Mapping[str, Any]]) -> dict[str, float | None]:
    """The mean of each number over several tests; None where one of them lacks it."""
    keys = ("old_old", "new_old", "new_new", "independent", "p_up", "p_comp", "p_1")
    values = {key: [summary[key] for summary in summaries] for key in keys}
    return {
        key: None if any(value is None for value in each) else sum(each) / len(each)
        for key, each in values.items()
    }


def evaluate_run(
    run: Run, collection: Collection, *, test: str = "", level: str = "", device: torch.device
) -> Evaluation:
    """Compares a finished run with the old run that its recipe names.

    With P-scores, where the recipe names the run of an independent model too.

    Args:
        run: Of the new model.
        collection: What is searched.
        test: Its name among the recipe's tests; empty for the recipe's own data.
        level: Which way to count, where the collection has several.
        device: What to work on.
    """
    return evaluate(
        **pair_of(run, collection, test=test, device=device),
        ground_truth=collection.truth(level),
        modalities=main_direction(run, collection),
    )


def main_direction(run: Run, collection: Collection) -> tuple[str, str] | None:
    """Who asks whom, where a model reads texts: texts for images, unless a protocol knows better.

    None for a model of images alone.
    """
    if run.recipe.text is None:
        return None
    return protocol_named(collection.protocol)[1].modalities or ("text", "image")


def pair_of(
    run: Run, collection: Collection, *, test: str = "", device: torch.device
) -> dict[str, Any]:
    """What is compared where a finished run is evaluated, as `evaluate` takes it.

    Args:
        run: Of the new model.
        collection: What is searched.
        test: Its name among the recipe's tests; empty for the recipe's own data.
        device: What to work on.
    """
    old = run.recipe.old

    def searched(one: Run, side: str = "gallery") -> Vectors:
        return searched_vectors(one, collection, test=test, of=run, device=device, side=side)

    is_run = old.independent is not None and Path(old.independent).is_dir()
    return {
        "old": searched(Run.open(Path(str(old.run)))),
        "new": searched(run),
        "query_for_old": searched(run, "query") if run.maps_queries else None,
        "independent": searched(Run.open(Path(str(old.independent)))) if is_run else None,
        "protocol": collection.protocol,
        "device": device,
    }


def searched_vectors(
    run: Run,
    collection: Collection,
    *,
    test: str = "",
    of: Run | None = None,
    device: torch.device,
    side: str = "gallery",
    watch: Watch = iter,
) -> Vectors:
    """The validation vectors that a finished run's model makes of a collection.

    Those of the collections that its own recipe names are made once, then read from its folder.

    Args:
        run: Of the model.
        collection: What to embed.
        test: Its name among the recipe's tests; empty for the recipe's own data.
        of: The run whose recipe named the collection, where it is not this one.
        device: What to work on.
        side: "gallery", or "query" for what asks the old gallery.
        watch: Wraps the batches, as a progress bar does.
    """
    path = vectors_path(run, test, side)
    is_its_own = (of or run).searches(test) == run.searches(test)
    if is_its_own and path.exists():
        return load_vectors(path)
    rows = collection.validation_rows()
    vectors = run_model(run, collection, rows, device=device, side=side, watch=watch)
    if is_its_own and is_main():
        vectors.save(path)
    return vectors


def make_vectors(
    run: Run, collection: Collection, *, test: str, device: torch.device, watch: Watch = iter
) -> None:
    """Embeds what a test of a run searches, all processes together, where that is not done yet."""
    for side in ("gallery", "query") if run.maps_queries else ("gallery",):
        missing = not vectors_path(run, test, side).exists()
        wait()  # until all have looked
        if missing:
            searched_vectors(run, collection, test=test, device=device, side=side, watch=watch)
    wait()


def vectors_path(run: Run, test: str = "", side: str = "gallery") -> Path:
    """Where a run keeps the vectors of what it searches."""
    stem = f"test_{test}" if test else "validation"
    return run.folder / (f"{stem}.parquet" if side == "gallery" else f"{stem}_query.parquet")


def run_model(
    run: Run,
    collection: Collection,
    rows: Int[Tensor, " rows"],
    *,
    device: torch.device,
    side: str = "gallery",
    watch: Watch = iter,
) -> Vectors:
    """Some rows of a collection as a finished run's model sees them."""
    collection = collection.seen_as(run.recipe.images)
    embeddings = run.embed(
        collection, rows, modalities=run.modalities, side=side, device=device, watch=watch
    )
    dim = embeddings.shape[1]
    meets_old_gallery = side == "query" or not run.maps_queries
    lineage = run.lineage() if meets_old_gallery else Lineage()
    longer = lineage.old_dim is not None and lineage.old_dim < dim
    return to_vectors(
        embeddings,
        collection,
        rows,
        modalities=run.modalities,
        space=run.space(collection, lineage.parent, dim=dim, side=side),
        compatible_dim=lineage.old_dim if longer else None,
    )


def save_evaluation(folder: Path, summary: dict[str, Any]) -> None:
    """Leaves the numbers in the run's folder."""
    write_text(folder / "evaluation.json", json.dumps(summary, indent=2) + "\n")


def embed_collection(
    model: Path,
    data: Path,
    *,
    split: str = "all",
    side: str = "gallery",
    decoding: Decoding = AS_IT_COMES,
    device: torch.device,
) -> Vectors:
    """Runs the model of a finished run over the [data] of a recipe or of another run.

    Args:
        model: The run's folder.
        data: A recipe, or a run's folder.
        split: "train", "validation" or "all".
        side: "gallery", or "query" for what asks the old gallery: the same but for RM.
        decoding: How image files are read.
        device: What to work on.
    """
    if side not in ("query", "gallery"):
        raise ConfigError(f"unknown side `{side}`. {suggest(side, ['query', 'gallery'])}")
    run = Run.open(model)
    recipe = read_sequence(data / "config.toml" if data.is_dir() else data)[-1]
    collection = decoding.open(recipe.data, run.recipe.images)
    rows = torch.arange(len(collection.ids))
    if split != "all":
        known = sorted(set(collection.columns["split"].tolist()))
        if split not in known:
            raise ConfigError(f"unknown split `{split}`. {suggest(split, ['all', *known])}")
        rows = rows[torch.from_numpy(collection.columns["split"] == split)]
    if side == "query" and not run.maps_queries:
        side = "gallery"
    return run_model(run, collection, rows, device=device, side=side)
