"""Reports on finished runs: one upgrade, several upgrades compared, or a sequence."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from nobackfill.core.config import Recipe
from nobackfill.core.steps import Step, Watch, unwatched
from nobackfill.data.collection import Collection
from nobackfill.errors import DataError
from nobackfill.evaluation.findings import findings_of
from nobackfill.evaluation.summary_file import read_summary
from nobackfill.evaluation.verdict import directions_of, over_directions
from nobackfill.report.build import ANALYSING, DRAWING, Report
from nobackfill.report.class_spaces import ClassSpaces, Place, class_spaces
from nobackfill.report.pages.expected import expected_of, expected_section
from nobackfill.report.pages.runs import runs_page
from nobackfill.report.pages.sequence import sequence_page
from nobackfill.report.pages.spaces import spaces_section
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
from nobackfill.vectors.records import read_space

# Settings that may differ between the seeds of one method.
PER_SEED = ("seed", "run", "vectors", "independent", "recipe", "independent_recipe")
SEARCHING = "report: searching as the runs did"


def report_runs(
    folders: Sequence[Path],
    *,
    title: str | None = None,
    device: torch.device,
    classes: Place = "training",
    decoding: Decoding = DEFAULT_DECODING,
    watch: Watch = unwatched,
) -> Report:
    """The report on one upgrade, or the comparison of several.

    Args:
        folders: Folders of finished runs whose recipes name an old run; or one sequence.
        title: Title of the page.
        device: Device of the search.
        classes: Classes whose means are compared: those of the "training" set, as in the paper
            (it is embedded once more, and the means are stored), or the "searched" ones.
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
        return report_run(
            runs[0], title=title, device=device, classes=classes, decoding=decoding, watch=watch
        )
    return report_many(
        runs, title=title, device=device, classes=classes, decoding=decoding, watch=watch
    )


def report_run(
    run: Run,
    *,
    title: str | None,
    device: torch.device,
    classes: Place = "training",
    decoding: Decoding = DEFAULT_DECODING,
    watch: Watch = unwatched,
) -> Report:
    """The report on one upgrade; for images and texts, the verdict covers all directions."""
    # Search as the run did.
    tests = _tests(run, decoding)
    watch(SEARCHING)
    summary = over_directions(_summary(run, decoding, device=device))
    name, collection = next(iter(tests.items()))
    evaluation = evaluate_run(
        run,
        collection,
        test=name,
        device=device,
        progress=lambda done, total: watch(Step(SEARCHING, done, total, "queries")),
    )
    watch(ANALYSING)
    findings, made_of = findings_of(evaluation), _made_of(run)

    # Describe the upgrade, with the numbers that the recipe expects.
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

    # Compare the class means of the training set; those of the searched classes are on the page.
    spaces, reason = None, ""
    if classes == "training":
        models = _with_independent(run)
        spaces, reason = spaces_of(models, classes, decoding, device=device, watch=watch)
    if spaces is not None and spaces.place == "training":
        page = replace(page, sections=[*page.sections, *spaces_section(spaces)])
    if reason:
        page = replace(page, not_measured=[*page.not_measured, reason])

    # In the JSON file, the joint verdict replaces that of the first direction.
    joint = ("verdict", "compatible", "verdicts") if "verdicts" in summary else ()
    facts = {
        **findings.summary(),
        **{key: summary[key] for key in joint},
        "tests": summary.get("tests", {}),
        **({"expected": expected} if expected else {}),
        "spread": _spread(spaces),
        "made_of": made_of,
    }
    return Report(page, facts, evaluation)


def _made_of(run: Run) -> dict[str, str]:
    """Sources of the numbers of a run."""
    return {
        "new model": f"{run.folder.name}, method {run.recipe.method.name}",
        "old model": str(run.recipe.old.run),
        "independent model": str(run.recipe.old.independent or "none"),
        "data": run.recipe.data.name,
        "new space": _fingerprint(run),
        "parent space": run.lineage().parent or "none declared",
    }


def _with_independent(run: Run) -> dict[str, Run]:
    """A run, and the run of its independent model if that has the same old model, by name."""
    models, path = {run.recipe.method.name: run}, run.recipe.old.independent
    if path and Path(path).is_dir():
        independent = Run.open(Path(path))
        if independent.recipe.old.run == run.recipe.old.run:
            models["independent"] = independent
    return models


def report_many(
    runs: Sequence[Run],
    *,
    title: str | None,
    device: torch.device,
    classes: Place = "training",
    decoding: Decoding = DEFAULT_DECODING,
    watch: Watch = unwatched,
) -> Report:
    """The comparison of several upgrades on the same items."""
    kinds = kinds_of([run.recipe for run in runs])

    def summary_of(place: int) -> dict[str, Any]:
        watch(Step(SEARCHING, place, len(runs), "runs"))
        return over_directions(_summary(runs[place], decoding, device=device))

    outcomes = [
        Outcome(
            name,
            kind,
            run.recipe.train.seed,
            summary_of(place),
            data=_data(run),
        )
        for place, (run, kind, name) in enumerate(zip(runs, kinds, names_of(runs), strict=True))
    ]
    check_same_search(outcomes)
    watch(ANALYSING)
    spaces, reason = spaces_of(
        of_one_seed(runs, kinds), classes, decoding, device=device, watch=watch
    )
    watch(DRAWING)
    page = runs_page(
        outcomes,
        title=title or "Upgrades compared",
        spaces=spaces,
        missing=reason,
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
        "spread": _spread(spaces),
        "not_measured": page.caveats,
    }
    return Report(page, facts)


def expected_of_old(runs: Sequence[Run]) -> dict[str, Mapping[str, Any]]:
    """Comparison of the old models with the numbers of their recipes, by folder name."""
    comparisons = {}
    for folder in sorted({str(run.recipe.old.run) for run in runs}):
        path = Path(folder) / "evaluation.json"
        summary = read_summary(path) if path.exists() else {}
        if "expected" in summary and "verdict" not in summary:
            comparisons[Path(folder).name] = summary["expected"]
    return comparisons


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


def of_one_seed(runs: Sequence[Run], kinds: Sequence[str]) -> dict[str, Run]:
    """The runs with the seed of the first Baseline, or of the first run, by kind."""
    pairs = list(zip(runs, kinds, strict=True))
    seeds = [run.recipe.train.seed for run, kind in pairs if kind == BASELINE]
    seed = (seeds or [runs[0].recipe.train.seed])[0]
    return {kind: run for run, kind in pairs if run.recipe.train.seed == seed}


def spaces_of(
    runs: Mapping[str, Run],
    classes: Place,
    decoding: Decoding,
    *,
    device: torch.device,
    watch: Watch,
) -> tuple[ClassSpaces | None, str]:
    """The class means of some runs; if they cannot be had, None and the reason.

    If the training set cannot be read, those of the searched classes.
    """
    first, reason = next(iter(runs.values())), ""
    collection = None
    if classes == "training":
        try:
            collection = decoding.open(first.recipe.data, first.recipe.images)
            steps = {run.recipe.train.step for run in runs.values()}
            if len(steps) > 1:
                raise DataError("the runs were trained on different classes")
        except DataError as error:
            collection, reason = None, f"classes of the training set: {error}"
    try:
        return class_spaces(runs, collection, device=device, watch=watch), reason
    except DataError as error:  # a class without a mean direction
        return None, f"class means: {error}"


def _spread(spaces: ClassSpaces | None) -> dict[str, Any] | None:
    """The standard deviation of the cosines of class means, for JSON."""
    if spaces is None:
        return None
    models = {
        name: {"as_they_are": plain, "centred": centred}
        for name, (plain, centred) in spaces.spread.items()
    }
    return {"classes": spaces.place, "models": models}


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
        summary = read_summary(path)
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
    files = (vectors_path(run, name) for name in ("", *run.recipe.tests))
    path = next((file for file in files if file.exists()), None)
    space = None if path is None else read_space(path)
    return space.fingerprint if space else "not declared"
