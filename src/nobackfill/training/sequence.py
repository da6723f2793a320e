"""Evaluates a sequence of upgrades: each model on its own and on all earlier galleries."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Never, TypedDict

import torch

from nobackfill.core.atomic_files import write_text
from nobackfill.core.json_files import as_kind, parse_object, read_json_text
from nobackfill.data.collection import Collection
from nobackfill.errors import DataError
from nobackfill.evaluation.matrix import mean_average_precision
from nobackfill.evaluation.protocols import protocol_named
from nobackfill.evaluation.scores import compatibility, p_scores
from nobackfill.evaluation.search_plan import plan_search
from nobackfill.evaluation.summary_file import ExpectedRecord
from nobackfill.training.decoding import DEFAULT_DECODING, Decoding
from nobackfill.training.embed import validation_vectors
from nobackfill.training.expected import compare_sequence
from nobackfill.training.results import main_direction, open_tests, search_own_gallery
from nobackfill.training.run import Run
from nobackfill.vectors import Vectors


@dataclass(frozen=True)
class SequenceModel:
    """One model of a sequence: folder name, method, step of the data and fingerprint it fits."""

    run: str
    method: str
    step: int
    parent: str | None


class AfterRecord(TypedDict):
    """AC and AM after an upgrade."""

    upgrades: int
    ac: float
    am: float


class ScoresRecord(TypedDict):
    """The P-scores of an upgrade."""

    new: int
    old: int
    p_up: float
    p_comp: float
    p_1: float


class ExpectedPart(TypedDict, total=False):
    """The part of `sequence.json` whose type `SequenceSummary` leaves open."""

    expected: ExpectedRecord | dict[str, Never]


@dataclass(frozen=True)
class SequenceSummary:
    """Results of a sequence, as stored in `sequence.json`.

    The matrix has the mAP of queries by model i (rows) on the gallery of model j (columns), for
    j <= i: the mean over the tests, as in the paper.
    """

    models: list[SequenceModel]  # in the order of training
    matrix: list[list[float]]
    ac: float  # share of upgrades that are compatible
    am: float  # mean of the matrix
    tests: dict[str, list[list[float]]]  # matrix of each test; empty with a single test
    after: list[AfterRecord] = field(default_factory=list)  # AC and AM of the first models
    # mAP of the independent model of each step on its own gallery; None if there is none
    independent: list[float | None] = field(default_factory=list)
    # P-scores of each upgrade whose models have independent ones
    p_scores: list[ScoresRecord] = field(default_factory=list)
    expected: dict[str, Any] = field(default_factory=dict)  # comparison with the recipe's numbers

    @classmethod
    def from_json(cls, path: Path) -> "SequenceSummary":
        """Reads `sequence.json`."""
        remedy = "Train the sequence again with --resume: it is then evaluated."
        facts = parse_object(read_json_text(path), str(path), remedy)
        summary = as_kind(cls, facts, str(path), remedy)
        as_kind(ExpectedPart, facts, str(path), remedy)
        number = len(summary.models)
        for matrix in (summary.matrix, *summary.tests.values()):
            if [len(row) for row in matrix] != list(range(1, number + 1)):
                raise DataError(
                    f"{path}: a matrix must have a row for each of {number} models, and in it a "
                    f"value for each model up to that one. {remedy}"
                )
        return summary

    def to_json(self) -> dict[str, Any]:
        """Returns the content of `sequence.json`."""
        return asdict(self)


def summarize_sequence(
    folder: Path,
    runs: Sequence[Run],
    *,
    device: torch.device,
    decoding: Decoding = DEFAULT_DECODING,
) -> SequenceSummary:
    """Evaluates finished runs on all tests of the last recipe and writes `sequence.json`."""
    # Compute the matrix of each test, then their mean; likewise for independent models.
    collections = open_tests(runs[-1].recipe, decoding)
    matrices = {
        name or "data": compatibility_matrix(runs, collection, test=name, device=device)
        for name, collection in collections.items()
    }
    independent = {
        name or "data": own_scores(runs, collection, test=name, device=device)
        for name, collection in collections.items()
    }
    if not matrices:
        raise DataError(
            "Nothing to search: neither [data] nor a test of the recipe has queries and a gallery "
            "of images. Add a table such as [tests.paris]."
        )
    mean = [
        [sum(m[i][j] for m in matrices.values()) / len(matrices) for j in range(i + 1)]
        for i in range(len(runs))
    ]
    after = [after_upgrades(mean, number) for number in range(1, len(runs))]

    # Summarize and save.
    models = [
        SequenceModel(
            run=run.folder.name,
            method=run.recipe.method.name,
            step=run.recipe.train.step,
            parent=run.lineage().parent,
        )
        for run in runs
    ]
    tests = matrices if len(matrices) > 1 else {}
    summary = SequenceSummary(
        models,
        mean,
        after[-1]["ac"],
        after[-1]["am"],
        tests,
        after,
        mean_over_tests(list(independent.values())),
        sequence_p_scores(matrices, independent),
    )
    if rows := compare_sequence(runs[-1].recipe.expected, summary.to_json()):
        source = str(runs[-1].recipe.expected.get("source", ""))
        summary = replace(summary, expected={"source": source, "rows": rows})
    write_text(folder / "sequence.json", json.dumps(summary.to_json(), indent=2) + "\n")
    return summary


def compatibility_matrix(
    runs: Sequence[Run], collection: Collection, *, test: str = "", device: torch.device
) -> list[list[float]]:
    """Returns the mAP of every model's queries on its own and on all earlier galleries.

    `nobackfill.evaluation.matrix` does the same for files. Here, a method that maps queries maps
    them from each gallery to the previous one.
    """
    # Plan one search for the vectors of all models.
    stored = [validation_vectors(run, collection, test=test, device=device) for run in runs]
    _, rules = protocol_named(collection.protocol)
    rules = replace(rules, modalities=main_direction(runs[-1], collection))
    named = {f"`{run.folder}`": vectors for run, vectors in zip(runs, stored, strict=True)}
    plan = plan_search(named, rules, ground_truth=collection.truth())

    # Search each gallery from the newest to the oldest; each step maps the queries once more.
    matrix = []
    for i, queries in enumerate(stored):
        row = [mean_average_precision(plan, rules, queries, stored[i], device=device)]
        for j in reversed(range(i)):
            queries = map_queries(runs[j + 1], queries, device)
            row.append(mean_average_precision(plan, rules, queries, stored[j], device=device))
        matrix.append(row[::-1])
    return matrix


def after_upgrades(matrix: Sequence[Sequence[float]], number: int) -> AfterRecord:
    """Returns AC and AM of the first `number + 1` models.

    Example:
        >>> after_upgrades([[0.2], [0.3, 0.4], [0.1, 0.2, 0.6]], 1)
        {'upgrades': 1, 'ac': 1.0, 'am': 0.3}
    """
    scores = compatibility([list(row) for row in matrix[: number + 1]])
    return {"upgrades": number, "ac": scores.ac, "am": scores.am}


def own_scores(
    runs: Sequence[Run], collection: Collection, *, test: str = "", device: torch.device
) -> list[float | None]:
    """Returns the mAP of each step's independent model on its own gallery; None without one.

    The first model of a sequence is independent itself.
    """
    scores: list[float | None] = []
    for run in runs:
        old = run.recipe.old
        path = str(run.folder) if old.run is None else old.independent
        if path is None or not Path(path).is_dir():
            scores.append(None)
            continue
        own = Run.open(Path(path))
        searched = search_own_gallery(own, collection, test=test, recipe_run=run, device=device)
        scores.append(searched["new_new"])
    return scores


def mean_over_tests(scores: Sequence[Sequence[float | None]]) -> list[float | None]:
    """Returns the mean of each step over the tests; None if a test lacks it.

    Example:
        >>> mean_over_tests([[0.25, None], [0.75, 0.5]])
        [0.5, None]
    """
    return [
        None if None in values else sum(filter(None, values)) / len(values)
        for values in zip(*scores, strict=True)
    ]


def sequence_p_scores(
    matrices: Mapping[str, Sequence[Sequence[float]]],
    independent: Mapping[str, Sequence[float | None]],
) -> list[ScoresRecord]:
    """Returns the P-scores of each upgrade, as the paper computes them: means over the tests.

    M(o,o) is the independent model of the older step, not the older model of the sequence, and M*
    that of the newer step. Upgrades without these, or without a gain to compare with, are left out.
    """
    tests, steps = list(matrices), len(next(iter(matrices.values())))
    scores: list[ScoresRecord] = []
    for new, old in ((i, j) for i in range(1, steps) for j in range(i)):
        old_old = [independent[test][old] for test in tests]
        ceiling = [independent[test][new] for test in tests]
        if None in (*old_old, *ceiling):
            continue
        new_new = [matrices[test][new][new] for test in tests]
        new_old = [matrices[test][new][old] for test in tests]
        try:
            p = p_scores(new_new, new_old, old_old, ceiling)
        except DataError:
            continue
        scores.append(
            {"new": new + 1, "old": old + 1, "p_up": p.up, "p_comp": p.comp, "p_1": p.one}
        )
    return scores


def map_queries(run: Run, vectors: Vectors, device: torch.device) -> Vectors:
    """Maps vectors of a run to queries of the previous gallery, if its method maps queries."""
    if not run.maps_queries:
        return vectors
    query = run.sides().query.eval().to(device)
    with torch.no_grad():
        mapped = query(vectors.vectors.float().to(device)).cpu()
    return Vectors(vectors.ids, mapped, vectors.labels, columns=vectors.columns)
