"""Evaluates a sequence of upgrades: each model on its own and on all earlier galleries."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from nobackfill.core.atomic_files import write_text
from nobackfill.data.collection import Collection
from nobackfill.errors import DataError
from nobackfill.evaluation.matrix import mean_average_precision
from nobackfill.evaluation.protocols import protocol_named
from nobackfill.evaluation.scores import compatibility
from nobackfill.evaluation.search_plan import plan_search
from nobackfill.training.decoding import DEFAULT_DECODING, Decoding
from nobackfill.training.embed import validation_vectors
from nobackfill.training.pipeline import main_direction, open_tests
from nobackfill.training.run import Run
from nobackfill.vectors import Vectors


@dataclass(frozen=True)
class SequenceModel:
    """One model of a sequence: folder name, method, step of the data and fingerprint it fits."""

    run: str
    method: str
    step: int
    parent: str | None


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

    @classmethod
    def from_json(cls, path: Path) -> "SequenceSummary":
        """Reads `sequence.json`."""
        facts = json.loads(path.read_text(encoding="utf-8"))
        return cls(**{**facts, "models": [SequenceModel(**model) for model in facts["models"]]})

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
    # Compute the matrix of each test, then their mean.
    matrices = {
        name or "data": compatibility_matrix(runs, collection, test=name, device=device)
        for name, collection in open_tests(runs[-1].recipe, decoding).items()
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
    scores = compatibility(mean)

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
    summary = SequenceSummary(models, mean, scores.ac, scores.am, tests)
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


def map_queries(run: Run, vectors: Vectors, device: torch.device) -> Vectors:
    """Maps vectors of a run to queries of the previous gallery, if its method maps queries."""
    if not run.maps_queries:
        return vectors
    query = run.sides().query.eval().to(device)
    with torch.no_grad():
        mapped = query(vectors.vectors.float().to(device)).cpu()
    return Vectors(vectors.ids, mapped, vectors.labels, columns=vectors.columns)
