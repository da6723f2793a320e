"""From finished runs, or two files of vectors, to a report and what lies beside it."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from nobackfill.core.atomic_files import find_path, write_text
from nobackfill.core.config import Recipe
from nobackfill.data.collection import Collection
from nobackfill.data.decode import open_image
from nobackfill.errors import DataError
from nobackfill.evaluation.by_modality import ByModality
from nobackfill.evaluation.evaluate import Evaluation
from nobackfill.evaluation.file_columns import columns_of
from nobackfill.evaluation.findings import findings_of
from nobackfill.evaluation.geometry import SimilarityHistogram, similarity_histogram
from nobackfill.evaluation.query_changes import compare
from nobackfill.evaluation.verdict import directions_of, over_directions
from nobackfill.methods.prototypes import class_means
from nobackfill.report.html import render_html
from nobackfill.report.markdown import render_markdown
from nobackfill.report.page import Page, check_page
from nobackfill.report.pages.backfill import backfill_section
from nobackfill.report.pages.by_modality import modalities_page
from nobackfill.report.pages.runs import (
    BASELINE,
    Outcome,
    check_same_search,
    comparison_of,
    runs_page,
)
from nobackfill.report.pages.sequence import sequence_page
from nobackfill.report.pages.upgrade import upgrade_page
from nobackfill.report.thumbnails import Show, thumbnail
from nobackfill.training.decoding import DEFAULT_DECODING, Decoding
from nobackfill.training.embed import vectors_path
from nobackfill.training.pipeline import (
    evaluate_run,
    evaluate_tests,
    open_tests,
    save_evaluation,
)
from nobackfill.training.run import Run
from nobackfill.training.sequence import SequenceSummary
from nobackfill.vectors import Vectors, load_vectors

OWN = ("seed", "run", "vectors", "independent", "recipe", "independent_recipe")  # of each seed
SEARCHING = "report: searching as the runs did"
LOOKING = "report: looking into queries, classes and scores"
DRAWING = "report: drawing the page"

Watch = Callable[[str], None]  # is told what is being done


def unwatched(what: str) -> None:
    """Tells nobody."""


@dataclass(frozen=True, eq=False)
class Report:
    """A page, the same facts for programs, and, of a single upgrade, its evaluation.

    Attributes:
        page: What people read.
        facts: What goes into JSON.
        evaluation: Whose queries go into a Parquet file; None where there are several runs.
    """

    page: Page
    facts: Mapping[str, Any]
    evaluation: Evaluation | None = None

    def save(self, path: Path) -> list[Path]:
        """Writes the page, and beside it the same as .md and .json, and queries as .parquet.

        Everything is made before anything is written. Returns the paths.
        """
        check_page(path)
        texts = {
            path.with_suffix(".json"): json.dumps(self.facts, indent=1, allow_nan=False) + "\n",
            path.with_suffix(".md"): render_markdown(self.page),
            path: render_html(self.page),
        }
        written = []
        if self.evaluation is not None:
            written.append(path.with_suffix(".queries.parquet"))
            compare(self.evaluation).save_queries(written[0])
        for place, text in texts.items():
            write_text(place, text)
        return [*written, *texts]


def report_runs(
    folders: Sequence[Path],
    *,
    title: str | None = None,
    device: torch.device,
    decoding: Decoding = DEFAULT_DECODING,
    watch: Watch = unwatched,
) -> Report:
    """The report of one upgrade, or the comparison of several.

    Args:
        folders: Of finished runs whose recipes name an old run; or one of a sequence.
        title: Of the page.
        device: What to search on.
        decoding: How image files are read, where a report shows some.
        watch: Is told what is being done.
    """
    if len(folders) == 1 and (path := folders[0] / "sequence.json").exists():
        sequence = SequenceSummary.from_json(path)
        page = sequence_page(sequence, title=title or "A sequence of upgrades")
        return Report(page, sequence.to_json())
    runs = [Run.open(folder) for folder in folders]
    for run in runs:
        if run.recipe.old.run is None:
            raise DataError(
                f"wanted upgrades to report on, but {run.folder} has no old model to compare with. "
                f"Leave it out: as the old model it is part of the others' reports."
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
    """The report of one upgrade; of images and texts its verdict is that of all directions."""
    tests = _tests(run, decoding)
    watch(SEARCHING)
    summary = over_directions(_summary(run, decoding, device=device))
    name, collection = next(iter(tests.items()))
    evaluation = evaluate_run(run, collection, test=name, device=device)
    watch(LOOKING)
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
        show=pictures_of(collection),
        tests=summary.get("tests"),
        directions=directions_of(summary),
        made_of=made_of,
    )
    joint = ("verdict", "compatible", "verdicts") if "verdicts" in summary else ()
    facts = {
        **findings.summary(),
        **{key: summary[key] for key in joint},
        "tests": summary.get("tests", {}),
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
    watch(LOOKING)
    similarity = similarity_of(runs, kinds)
    watch(DRAWING)
    page = runs_page(outcomes, title=title or "Upgrades compared", similarity=similarity)
    facts = {
        "methods": {
            kind: {
                key: value.summary() if hasattr(value, "summary") else value
                for key, value in one.items()
            }
            for kind, one in comparison_of(outcomes).items()
        },
        "runs": [asdict(one) for one in outcomes],
        "not_measured": list(page.not_measured),
    }
    return Report(page, facts)


def report_vectors(
    evaluation: Evaluation, files: Sequence[Vectors], *, title: str, watch: Watch = unwatched
) -> Report:
    """The report of two files of vectors, compared.

    Args:
        evaluation: As `evaluate` returns it.
        files: What was compared; their columns `path` and `text` show items.
        title: Of the page.
        watch: Is told what is being done: with many items this takes longer than the search.
    """
    watch(LOOKING)
    findings, spaces = findings_of(evaluation), _spaces(files)
    watch(DRAWING)
    page = upgrade_page(findings, title=title, show=looks_in(files), made_of=spaces)
    return Report(page, {**findings.summary(), "made_of": spaces}, evaluation)


def report_modalities(found: ByModality, files: Sequence[Vectors], *, title: str) -> Report:
    """The report of two files of vectors, compared direction by direction.

    Args:
        found: As `evaluate_modalities` returns it.
        files: What was compared.
        title: Of the page.
    """
    spaces = _spaces(files)
    page = modalities_page(found, title=title, made_of=spaces)
    return Report(page, {**found.summary(), "made_of": spaces})


def report_backfill(plan: Mapping[str, Any]) -> Report:
    """The report of a backfill plan.

    Args:
        plan: As `BackfillPlan.summary` returns it.
    """
    page = Page(
        "Which items should be embedded again?",
        [plan["advice"][0].upper() + plan["advice"][1:]],
        [backfill_section(plan)],
        not_measured=plan["notes"],
    )
    return Report(page, plan)


def _spaces(files: Sequence[Vectors]) -> dict[str, str]:
    """The fingerprints of what was compared."""
    return {
        f"{name} space": file.space.fingerprint if file.space else "not declared"
        for name, file in zip(("old", "new"), files, strict=False)
    }


def kinds_of(recipes: Sequence[Recipe]) -> list[str]:
    """What to call each run: its method, and where runs of one method differ, by what.

    Seeds, and which old run it was, make no difference.
    """
    flat = [_flat(asdict(recipe)) for recipe in recipes]
    names = []
    for one in flat:
        alike = [other for other in flat if other["method.name"] == one["method.name"]]
        keys = sorted({key for other in alike for key in other})
        differ = [key for key in keys if len({str(other.get(key)) for other in alike}) > 1]
        said = ", ".join(f"{key.split('.')[-1]}={one.get(key)}" for key in differ)
        names.append(one["method.name"] + (f" ({said})" if said else ""))
    return names


def _flat(tree: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Settings by their dotted names, without those that are a seed's own."""
    found: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, Mapping):
            found |= {} if key == "expected" else _flat(value, f"{above}{key}.")
        elif key not in OWN:
            found[f"{above}{key}".replace(".options.", ".")] = value
    return found


def similarity_of(runs: Sequence[Run], kinds: Sequence[str]) -> SimilarityHistogram | None:
    """How similar class means are under each method, where the Baseline is among them.

    Of the first seed that has one, on what the runs search; None without a Baseline or labels.
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
    known = {name: part for name, part in means.items() if part is not None}
    if not {"old", BASELINE} <= known.keys():
        return None
    return similarity_histogram(known, ("old", BASELINE))


def _means(vectors: Vectors) -> torch.Tensor | None:
    """The class means of a file, in the order of its labels."""
    if vectors.labels is None:
        return None
    known, place = np.unique(vectors.labels, return_inverse=True)
    return class_means(vectors.vectors.float(), torch.from_numpy(place), len(known))


def _searched_tests(run: Run) -> list[str]:
    """Names of the tests whose vectors lie in a run's folder; the empty one is its own data."""
    names = ["", *run.recipe.tests]
    return [name for name in names if vectors_path(run, name).exists()]


def _tests(run: Run, decoding: Decoding) -> dict[str, Collection]:
    """What a run searches, by name; the empty one is its own data."""
    searched = open_tests(run.recipe, decoding)
    if not searched:
        raise DataError(
            f"wanted something that {run.folder} was tested on, but neither [data] nor a test of "
            f"its recipe has queries and a gallery."
        )
    return searched


def names_of(runs: Sequence[Run]) -> list[str]:
    """What to call each run: its folder, with the one above it where that tells more apart."""
    names = [run.folder.name for run in runs]
    if len(set(names)) == len(names):
        return names
    return ["/".join(run.folder.resolve().parts[-2:]) for run in runs]


def _summary(run: Run, decoding: Decoding, *, device: torch.device) -> dict[str, Any]:
    """What a run came to: as it was left in its folder, or made now where that is older."""
    path = run.folder / "evaluation.json"
    if path.exists():
        summary: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if "searched" in summary:
            return summary
    summary = evaluate_tests(run, _tests(run, decoding), device=device)
    save_evaluation(run.folder, summary)
    return summary


def _data(run: Run) -> str:
    """What a run's items are made from, but for where they lie and which the old model knew."""
    own = ("path", "seed", "shares")
    told = {"name": run.recipe.data.name, **run.recipe.data.options}
    return str({key: value for key, value in sorted(told.items()) if key not in own})


def _fingerprint(run: Run) -> str:
    """Of the space that a run's vectors say they are in."""
    tests = _searched_tests(run)
    space = load_vectors(vectors_path(run, tests[0])).space if tests else None
    return space.fingerprint if space else "not declared"


def pictures_of(collection: Collection) -> Show:
    """Shows the images of a collection, and its texts."""

    def show(ids: Sequence[Any]) -> dict[Any, str]:
        row = {item: place for place, item in enumerate(collection.ids)}
        known = [item for item in ids if item in row]
        texts = texts_of(collection, ids)
        if not known:
            return texts
        pixels = collection.load(torch.tensor([row[item] for item in known]), None)
        if pixels.dtype != torch.uint8:
            low, high = pixels.min(), pixels.max()
            pixels = ((pixels - low) / (high - low).clamp(min=1e-9) * 255).to(torch.uint8)
        return texts | {
            item: thumbnail(Image.fromarray(image.permute(1, 2, 0).squeeze(-1).numpy()))
            for item, image in zip(known, pixels, strict=True)
        }

    return show


def texts_of(collection: Collection, ids: Sequence[Any]) -> dict[Any, str]:
    """Those of some items that are texts."""
    if collection.captions is None:
        return {}
    wanted = set(ids)
    told = zip(collection.captions.ids, collection.captions.texts, strict=True)
    return {item: text for item, text in told if item in wanted}


def looks_in(files: Sequence[Vectors]) -> Show:
    """Shows items by the columns `path` (an image file, if it is there) and `text` of the files."""

    def show(ids: Sequence[Any]) -> dict[Any, str]:
        shown: dict[Any, str] = {}
        for file in files:
            known = set(file.ids.tolist())
            here = np.array([item for item in ids if item in known])
            columns = columns_of([file], here) if len(here) else {}
            for item, text in zip(here.tolist(), columns.get("text", ()), strict=False):
                if text:
                    shown.setdefault(item, str(text))
            for item, path in zip(here.tolist(), columns.get("path", ()), strict=False):
                if picture := _picture(str(path)):
                    shown[item] = picture
        return shown

    return show


def _picture(path: str) -> str | None:
    """A small picture of an image file; None where there is none that can be read."""
    try:
        return thumbnail(open_image(find_path(path, "image")))
    except DataError:
        return None
