"""Evaluates finished runs on the tests of their recipes: against the old run, or alone."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from nobackfill.core.atomic_files import write_text
from nobackfill.core.config import Recipe
from nobackfill.data.collection import Collection
from nobackfill.evaluation.by_modality import evaluate_modalities
from nobackfill.evaluation.evaluate import Evaluation, evaluate
from nobackfill.evaluation.protocols import protocol_named
from nobackfill.evaluation.search import PairVectors, search_as_planned
from nobackfill.evaluation.search_plan import plan_search
from nobackfill.training.decoding import Decoding
from nobackfill.training.embed import validation_vectors
from nobackfill.training.expected import compare_results, expects_results
from nobackfill.training.run import Run
from nobackfill.vectors import Vectors


def open_tests(
    recipe: Recipe, decoding: Decoding, collection: Collection | None = None
) -> dict[str, Collection]:
    """Opens the collections of a recipe that have queries; "" is the name of its own data."""
    tests = {"": collection or decoding.open(recipe.data, recipe.images)}
    for name, choice in recipe.tests.items():
        tests[name] = decoding.open(choice, recipe.images)
    if recipe.text is None:
        return {name: test for name, test in tests.items() if test.is_searched}
    return {
        name: test
        for name, test in tests.items()
        if test.captions is not None and len(test.validation_rows()) > 0
    }


def evaluate_tests(
    run: Run, tests: Mapping[str, Collection], *, device: torch.device
) -> dict[str, Any]:
    """Compares a finished run with its old run on several tests.

    The result has the numbers of the first test at its top level. `tests` has those of the other
    tests and relevance levels. With several tests, `mean` has their means, including the P-scores,
    as in the paper. `expected` compares them with the results that the recipe expects.
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
    own = {name: results[name].summary() for name in tests}
    return with_expected(run.recipe, own, summary)


def evaluate_alone(
    run: Run, tests: Mapping[str, Collection], *, device: torch.device
) -> dict[str, Any]:
    """Evaluates a run without an old model on its own gallery, on several tests.

    The result has the keys of `evaluate_tests` that do not concern an old model.
    """
    results = {
        name: search_own_gallery(run, collection, test=name, device=device)
        for name, collection in tests.items()
    }
    first, *others = results
    summary: dict[str, Any] = dict(results[first])
    if others:
        summary["tests"] = {name: results[name] for name in others}
        values = [result["new_new"] for result in results.values()]
        summary["mean"] = {"new_new": sum(values) / len(values)}
    return with_expected(run.recipe, results, summary)


def search_own_gallery(
    run: Run,
    collection: Collection,
    *,
    test: str = "",
    recipe_run: Run | None = None,
    device: torch.device,
) -> dict[str, Any]:
    """Returns the mAP and Recall@1 of a run on its own gallery, by the names of `evaluate`.

    The recipe of `recipe_run`, by default that of `run`, names the collection.
    """
    vectors = validation_vectors(run, collection, test=test, recipe_run=recipe_run, device=device)
    _, rules = protocol_named(collection.protocol)
    rules = replace(rules, modalities=main_direction(run, collection))
    plan = plan_search({"new": vectors}, rules, ground_truth=collection.truth())
    pair = PairVectors(plan, {"new_new": (vectors, vectors, vectors.dim)}, device)["new_new"]
    retrieval = search_as_planned(plan, rules, *pair)
    return {
        "new_new": retrieval.mean_average_precision,
        "recall_at_1": {"new_new": retrieval.recall(1)},
        "protocol": collection.protocol,
        "num_queries": len(plan.query_ids),
        "num_gallery": len(plan.gallery_ids),
    }


def with_expected(
    recipe: Recipe, results: Mapping[str, Mapping[str, Any]], summary: dict[str, Any]
) -> dict[str, Any]:
    """Adds the comparison with the recipe's expected results, if there are any."""
    if not expects_results(recipe):
        return summary
    source = str(recipe.expected.get("source", ""))
    return {
        **summary,
        "expected": {"source": source, "rows": compare_results(recipe, results, summary)},
    }


def evaluate_directions(
    run: Run, tests: Mapping[str, Collection], *, device: torch.device
) -> dict[str, Any]:
    """Compares a model of images and texts with its old run, in every direction of search.

    The direction from texts to images comes first, if it was evaluated. Besides old/old, new/old
    and new/new, each direction has `old_new`: old queries on the new gallery. `modality_gap` is the
    distance between images and texts.
    """
    results, gaps, notes = dict[str, dict[str, Any]](), dict[str, Any](), list[str]()
    for name, collection in tests.items():
        inputs = _evaluation_inputs(run, collection, test=name, device=device)
        summary = evaluate_modalities(**inputs).summary()
        directions = summary["directions"]
        main = "_to_".join(main_direction(run, collection) or ())
        for direction in sorted(directions, key=lambda direction: direction != main):
            results["_".join(filter(None, (name, direction)))] = directions[direction]
        gaps[name or "data"] = summary["modality_gap"]
        notes += summary["notes"]
    first, *others = results
    summary = {
        **results[first],
        "direction": first,
        "notes": notes,
        "tests": {name: results[name] for name in others},
        "modality_gap": gaps if len(gaps) > 1 else gaps[next(iter(gaps))],
    }
    return with_expected(run.recipe, {next(iter(tests)): results[first]}, summary)


def mean_scores(summaries: Sequence[Mapping[str, Any]]) -> dict[str, float | None]:
    """Returns the mean of each score over several tests; None if a test lacks it."""
    keys = ("old_old", "new_old", "new_new", "independent", "p_up", "p_comp", "p_1")
    values = {key: [summary[key] for summary in summaries] for key in keys}
    return {
        key: None if any(value is None for value in each) else sum(each) / len(each)
        for key, each in values.items()
    }


def evaluate_run(
    run: Run,
    collection: Collection,
    *,
    test: str = "",
    level: str = "",
    device: torch.device,
    progress: Callable[[int, int], None] | None = None,
) -> Evaluation:
    """Compares a finished run with the old run of its recipe, on one test and relevance level.

    The result has P-scores if the recipe names the run of an independent model. `progress` receives
    the numbers of done and all searches.
    """
    return evaluate(
        **_evaluation_inputs(run, collection, test=test, device=device),
        ground_truth=collection.truth(level),
        modalities=main_direction(run, collection),
        progress=progress,
    )


def main_direction(run: Run, collection: Collection) -> tuple[str, str] | None:
    """Returns the modalities of query and gallery: texts and images, unless the protocol differs.

    None for a model of images alone.
    """
    if run.recipe.text is None:
        return None
    return protocol_named(collection.protocol)[1].modalities or ("text", "image")


def _evaluation_inputs(
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
