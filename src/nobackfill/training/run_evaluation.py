"""Evaluates a finished run against the old run of its recipe, on all tests of the recipe."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from nobackfill.core.atomic_files import write_text
from nobackfill.core.config import Recipe
from nobackfill.data.collection import Collection
from nobackfill.evaluation.by_modality import evaluate_modalities
from nobackfill.evaluation.evaluate import Evaluation, evaluate
from nobackfill.evaluation.protocols import protocol_named
from nobackfill.training.run import Run
from nobackfill.training.run_vectors import validation_vectors
from nobackfill.vectors import Vectors


def has_queries(collection: Collection, recipe: Recipe) -> bool:
    """Whether a collection has images to search, or texts if the recipe's model reads texts."""
    if recipe.text is None:
        return collection.is_searched
    return collection.captions is not None and len(collection.validation_rows()) > 0


def evaluate_tests(
    run: Run, tests: Mapping[str, Collection], *, device: torch.device
) -> dict[str, Any]:
    """Compares a finished run with its old run on several tests.

    The result has the numbers of the first test at its top level. `tests` has those of the other
    tests and relevance levels. With several tests, `mean` has their means, including the P-scores,
    as in the paper.
    """
    if run.recipe.text is not None:
        return evaluate_directions(run, tests, device=device)

    # Evaluate every test at its default level, then at its other levels.
    results = {}
    for name, collection in tests.items():
        results[name] = evaluate_run(run, collection, test=name, device=device)
        for level in sorted(collection.ground_truth.keys() - {collection.level}):
            results[f"{name}_{level}".removeprefix("_")] = evaluate_run(
                run, collection, test=name, level=level, device=device
            )

    # Summarize with the first test at the top.
    first, *others = results
    summary = results[first].summary()
    if others:
        summary["tests"] = {name: results[name].summary() for name in others}
    if len(tests) > 1:
        summary["mean"] = mean_scores([results[name].summary() for name in tests])
    return summary


def evaluate_directions(
    run: Run, tests: Mapping[str, Collection], *, device: torch.device
) -> dict[str, Any]:
    """Does the same for a model of images and texts, in every direction of search.

    The direction from texts to images comes first, if it was evaluated. Besides old/old, new/old
    and new/new, each direction has `old_new`: old queries on the new gallery. `modality_gap` is the
    distance between images and texts.
    """
    results, gaps, notes = dict[str, dict[str, Any]](), dict[str, Any](), list[str]()
    for name, collection in tests.items():
        inputs = evaluation_inputs(run, collection, test=name, device=device)
        summary = evaluate_modalities(**inputs).summary()
        directions = summary["directions"]
        main = "_to_".join(main_direction(run, collection) or ())
        for direction in sorted(directions, key=lambda direction: direction != main):
            results["_".join(filter(None, (name, direction)))] = directions[direction]
        gaps[name or "data"] = summary["modality_gap"]
        notes += summary["notes"]
    first, *others = results
    return {
        **results[first],
        "direction": first,
        "notes": notes,
        "tests": {name: results[name] for name in others},
        "modality_gap": gaps if len(gaps) > 1 else gaps[next(iter(gaps))],
    }


def mean_scores(summaries: Sequence[Mapping[str, Any]]) -> dict[str, float | None]:
    """Returns the mean of each score over several tests; None if a test lacks it."""
    keys = ("old_old", "new_old", "new_new", "independent", "p_up", "p_comp", "p_1")
    values = {key: [summary[key] for summary in summaries] for key in keys}
    return {
        key: None if any(value is None for value in each) else sum(each) / len(each)
        for key, each in values.items()
    }


def evaluate_run(
    run: Run, collection: Collection, *, test: str = "", level: str = "", device: torch.device
) -> Evaluation:
    """Compares a finished run with the old run of its recipe.

    The result has P-scores if the recipe names the run of an independent model.

    Args:
        run: Run of the new model.
        collection: Collection to search.
        test: Name of the test in the recipe; empty for the recipe's own data.
        level: Relevance level, for a collection with several.
        device: Device to work on.
    """
    return evaluate(
        **evaluation_inputs(run, collection, test=test, device=device),
        ground_truth=collection.truth(level),
        modalities=main_direction(run, collection),
    )


def main_direction(run: Run, collection: Collection) -> tuple[str, str] | None:
    """Returns the modalities of query and gallery: texts and images, unless the protocol differs.

    None for a model of images alone.
    """
    if run.recipe.text is None:
        return None
    return protocol_named(collection.protocol)[1].modalities or ("text", "image")


def evaluation_inputs(
    run: Run, collection: Collection, *, test: str = "", device: torch.device
) -> dict[str, Any]:
    """Returns the arguments of `evaluate` for a finished run; see `evaluate_run`."""
    old = run.recipe.old

    def vectors_by(model: Run, side: str = "gallery") -> Vectors:
        return validation_vectors(
            model, collection, test=test, recipe_run=run, device=device, side=side
        )

    is_run = old.independent is not None and Path(old.independent).is_dir()
    return {
        "old": vectors_by(Run.open(Path(str(old.run)))),
        "new": vectors_by(run),
        "query_for_old": vectors_by(run, "query") if run.maps_queries else None,
        "independent": vectors_by(Run.open(Path(str(old.independent)))) if is_run else None,
        "protocol": collection.protocol,
        "device": device,
    }


def save_evaluation(folder: Path, summary: dict[str, Any]) -> None:
    """Writes the results to `evaluation.json` in the run folder."""
    write_text(folder / "evaluation.json", json.dumps(summary, indent=2) + "\n")
