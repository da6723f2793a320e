"""Reports on finished runs: one upgrade, several upgrades compared, or a sequence."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from nobackfill.core.config import Recipe
from nobackfill.data.collection import Collection
from nobackfill.errors import DataError
from nobackfill.evaluation.findings import findings_of
from nobackfill.evaluation.geometry import SimilarityHistogram, similarity_histogram
from nobackfill.evaluation.verdict import directions_of, over_directions
from nobackfill.methods.prototypes import class_means
from nobackfill.report.build import ANALYSING, DRAWING, Report, Watch, unwatched
from nobackfill.report.pages.expected import expected_of, expected_section
from nobackfill.report.pages.runs import runs_page
from nobackfill.report.pages.sequence import sequence_page
from nobackfill.report.pages.upgrade import upgrade_page
from nobackfill.report.seeds import BASELINE, Outcome, check_same_search, comparison_of
from nobackfill.report.thumbnails import show_collection
from nobackfill.training.decoding import DEFAULT_DECODING, Decoding
from nobackfill.training.embed import vectors_path
from nobackfill.training.results import (
    evaluate_run,
    evaluate_tests,
    open_tests,
    save_evaluation,
)
from nobackfill.training.run import Run
from nobackfill.training.sequence import SequenceSummary
from nobackfill.vectors import Vectors, load_vectors

# Settings that may differ between the seeds of one method.
PER_SEED = ("seed", "run", "vectors", "independent", "recipe", "independent_recipe")
SEARCHING = "report: searching as the runs did"


def report_runs(
    folders: Sequence[Path],
    *,
    title: str | None = None,
    device: torch.device,
    decoding: Decoding = DEFAULT_DECODING,
    watch: Watch = unwatched,
) -> Report:
    """The report on one upgrade, or the comparison of several.

    Args:
        folders: Folders of finished runs whose recipes name an old run; or one sequence.
        title: Title of the page.
        device: Device of the search.
        decoding: How image files are read.
        watch: Receives the name of each step.
    """
    if len(folders) == 1 and (path := folders[0] / "sequence.json").exists():
        sequence = SequenceSummary.from_json(path)
        page = sequence_page(sequence, title=title or "A sequence of upgrades")
        return Report(page, sequence.to_json())
    runs = [Run.open(folder) for folder in folders]
    for run in runs:
        if run.recipe.old.run is None:
            raise DataError(
                f"{run.folder} has no old model to compare with, so it is not an upgrade. Leave it "
                f"out: as the old model it is part of the reports on the others."
            )
    if len(runs) == 1:
        return report_run(runs[0], title=title, device=device, decoding=decoding, watch=watch)
    return report_many(runs, title=title, device=device, decoding=decoding, watch=watch)


def report_run(
    run: Run,
    *,
    title: str | None,
    device: torch.device,
    decoding: Decoding = DEFAULT_DECODING,
    watch: Watch = unwatched,
) -> Report:
    """The report on one upgrade; for images and texts, the verdict covers all directions."""
    # search as the run did
    tests = _tests(run, decoding)
    watch(SEARCHING)
    summary = over_directions(_summary(run, decoding, device=device))
    name, collection = next(iter(tests.items()))
    evaluation = evaluate_run(run, collection, test=name, device=device)
    watch(ANALYSING)
    findings = findings_of(evaluation)
    made_of = {
        "new model": f"{run.folder.name}, method {run.recipe.method.name}",
        "old model": str(run.recipe.old.run),
        "independent model": str(run.recipe.old.independent or "none"),
        "data": run.recipe.data.name,
        "new space": _fingerprint(run),
        "parent space": run.lineage().parent or "none declared",
    }
    watch(DRAWING)
    page = upgrade_page(
        findings,
        title=title or f"May {run.folder.name} go live on the stored vectors?",
        show=show_collection(collection),
        tests=summary.get("tests"),
        directions=directions_of(summary),
        made_of=made_of,
    )
    if expected := summary.get("expected"):
        section = expected_section({run.recipe.method.name: expected})
        page = replace(page, sections=[page.sections[0], *section, *page.sections[1:]])
    # the joint verdict replaces the one of the first direction
    joint = ("verdict", "compatible", "verdicts") if "verdicts" in summary else ()
    facts = {
        **findings.summary(),
        **{key: summary[key] for key in joint},
        "tests": summary.get("tests", {}),
        **({"expected": expected} if expected else {}),
        "made_of": made_of,
    }
    return Report(page, facts, evaluation)


def report_many(
    runs: Sequence[Run],
    *,
    title: str | None,
    device: torch.device,
    decoding: Decoding = DEFAULT_DECODING,
    watch: Watch = unwatched,
) -> Report:
    """The comparison of several upgrades on the same items."""
    watch(SEARCHING)
    kinds = kinds_of([run.recipe for run in runs])
    outcomes = [
        Outcome(
            name,
            kind,
            run.recipe.train.seed,
            over_directions(_summary(run, decoding, device=device)),
            data=_data(run),
        )
        for run, kind, name in zip(runs, kinds, names_of(runs), strict=True)
    ]
    check_same_search(outcomes)
    watch(ANALYSING)
    similarity = similarity_of(runs, kinds)
    watch(DRAWING)
    page = runs_page(
        outcomes,
        title=title or "Upgrades compared",
        similarity=similarity,
        alone=expected_of_old(runs),
    )
    facts = {
        "methods": {
            kind: {
                key: value.summary() if hasattr(value, "summary") else value
                for key, value in numbers.items()
            }
            for kind, numbers in comparison_of(outcomes).items()
        },
        "runs": [asdict(outcome) for outcome in outcomes],
        "expected": expected_of(outcomes, expected_of_old(runs)),
        "not_measured": page.caveats,
    }
    return Report(page, facts)


def expected_of_old(runs: Sequence[Run]) -> dict[str, Mapping[str, Any]]:
    """Comparison of the old models with the numbers of their recipes, by folder name."""
    found = {}
    for folder in sorted({str(run.recipe.old.run) for run in runs}):
        path = Path(folder) / "evaluation.json"
        summary = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        if "expected" in summary and "verdict" not in summary:
            found[Path(folder).name] = summary["expected"]
    return found


def kinds_of(recipes: Sequence[Recipe]) -> list[str]:
    """Name of each run: its method, with the settings in which runs of one method differ.

    Seeds and the paths of other models do not count as differences.
    """
    settings = [_settings(asdict(recipe)) for recipe in recipes]
    names = []
    for own in settings:
        same_method = [s for s in settings if s["method.name"] == own["method.name"]]
        keys = sorted({key for other in same_method for key in other})
        differ = [key for key in keys if len({str(s.get(key)) for s in same_method}) > 1]
        values = ", ".join(f"{key.split('.')[-1]}={own.get(key)}" for key in differ)
        names.append(own["method.name"] + (f" ({values})" if values else ""))
    return names


def _settings(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Settings by their dotted names, without those of `PER_SEED`."""
    settings: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, Mapping):
            settings |= {} if key == "expected" else _settings(value, f"{prefix}{key}.")
        elif key not in PER_SEED:
            settings[f"{prefix}{key}".replace(".options.", ".")] = value
    return settings


def names_of(runs: Sequence[Run]) -> list[str]:
    """Folder names of the runs, with the parent folder if two runs share a name."""
    names = [run.folder.name for run in runs]
    if len(set(names)) == len(names):
        return names
    return ["/".join(run.folder.resolve().parts[-2:]) for run in runs]


def similarity_of(runs: Sequence[Run], kinds: Sequence[str]) -> SimilarityHistogram | None:
    """Similarity of class means under each method; None without a Baseline or labels.

    Compares the runs with the seed of the first Baseline, on the vectors that they search.
    """
    seed = next((r.recipe.train.seed for r, k in zip(runs, kinds, strict=True) if k == BASELINE), 0)
    chosen = {
        kind: run
        for run, kind in zip(runs, kinds, strict=True)
        if run.recipe.train.seed == seed and not run.maps_queries
    }
    test = next(iter(_searched_tests(runs[0])), None)
    if BASELINE not in chosen or test is None:
        return None
    old = vectors_path(Run.open(Path(str(chosen[BASELINE].recipe.old.run))), test)
    files = {"old": old} | {kind: vectors_path(run, test) for kind, run in chosen.items()}
    means = {name: _means(load_vectors(path)) for name, path in files.items() if path.exists()}
    prototypes = {name: part for name, part in means.items() if part is not None}
    if not {"old", BASELINE} <= prototypes.keys():
        return None
    return similarity_histogram(prototypes, ("old", BASELINE))


def _means(vectors: Vectors) -> torch.Tensor | None:
    """Class means of a file, in the order of its labels."""
    if vectors.labels is None:
        return None
    classes, place = np.unique(vectors.labels, return_inverse=True)
    return class_means(vectors.vectors.float(), torch.from_numpy(place), len(classes))


def _searched_tests(run: Run) -> list[str]:
    """Names of the tests with vectors in the folder of a run; "" is its own data."""
    return [name for name in ("", *run.recipe.tests) if vectors_path(run, name).exists()]


def _tests(run: Run, decoding: Decoding) -> dict[str, Collection]:
    """Collections that a run searches, by test; "" is its own data."""
    searched = open_tests(run.recipe, decoding)
    if not searched:
        raise DataError(
            f"{run.folder} was not tested: neither [data] nor a test of its recipe has queries and "
            f"a gallery."
        )
    return searched


def _summary(run: Run, decoding: Decoding, *, device: torch.device) -> dict[str, Any]:
    """The `evaluation.json` of a run; evaluates the run if the file is missing or too old."""
    path = run.folder / "evaluation.json"
    if path.exists():
        summary: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if "searched" in summary:
            return summary
    summary = evaluate_tests(run, _tests(run, decoding), device=device)
    save_evaluation(run.folder, summary)
    return summary


def _data(run: Run) -> str:
    """Dataset and options of a run, without its path and the classes of the old model."""
    options = {"name": run.recipe.data.name, **run.recipe.data.options}
    own = ("path", "seed", "shares")
    return str({key: value for key, value in sorted(options.items()) if key not in own})


def _fingerprint(run: Run) -> str:
    """Fingerprint of the space of a run's vectors."""
    tests = _searched_tests(run)
    space = load_vectors(vectors_path(run, tests[0])).space if tests else None
    return space.fingerprint if space else "not declared"
