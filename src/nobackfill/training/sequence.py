"""A sequence of upgrades: how each model serves the galleries of all before it."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from nobackfill.core.atomic_files import write_text
from nobackfill.data.collection import Collection
from nobackfill.errors import DataError
from nobackfill.evaluation.matrix import mean_average_precision
from nobackfill.evaluation.multi_plan import plan_common_search
from nobackfill.evaluation.protocols import protocol_named
from nobackfill.evaluation.scores import compatibility
from nobackfill.training.decoding import DEFAULT_DECODING, Decoding
from nobackfill.training.run import Run
from nobackfill.training.run_evaluation import has_queries, main_direction
from nobackfill.training.run_vectors import validation_vectors
from nobackfill.vectors import Vectors


def summarize_sequence(
    folder: Path,
    runs: Sequence[Run],
    *,
    device: torch.device,
    decoding: Decoding = DEFAULT_DECODING,
) -> dict[str, Any]:
    """The compatibility matrix of finished runs, AC and AM, also left in `sequence.json`.

    `matrix[i][j]` is the mAP of queries by model i on the gallery of model j, for j up to i.
    Several tests are averaged, as the paper does; each stands below `tests` too.
    """
    recipe = runs[-1].recipe
    collections = {
        name: decoding.open(choice, recipe.images)
        for name, choice in {"": recipe.data, **recipe.tests}.items()
    }
    matrices = {
        name or "data": compatibility_matrix(runs, one, test=name, device=device)
        for name, one in collections.items()
        if has_queries(one, recipe)
    }
    if not matrices:
        raise DataError(
            "wanted something to search, but neither [data] nor a test of the recipe has queries "
            "and a gallery of images. Add a table such as [tests.paris]."
        )
    mean = [
        [sum(m[i][j] for m in matrices.values()) / len(matrices) for j in range(i + 1)]
        for i in range(len(runs))
    ]
    scores = compatibility(mean)
    summary = {
        "models": [
            {
                "run": run.folder.name,
                "method": run.recipe.method.name,
                "step": run.recipe.train.step,
                "parent": run.lineage().parent,
            }
            for run in runs
        ],
        "matrix": mean,
        "ac": scores.ac,
        "am": scores.am,
        "tests": matrices if len(matrices) > 1 else {},
    }
    write_text(folder / "sequence.json", json.dumps(summary, indent=2) + "\n")
    return summary


def compatibility_matrix(
    runs: Sequence[Run], collection: Collection, *, test: str = "", device: torch.device
) -> list[list[float]]:
    """MAP of every model's queries on its own gallery and on those of all before it.

    `nobackfill.evaluation.matrix` does the same for files. Here, methods that map queries map
    them on from gallery to gallery.
    """
    stored = [validation_vectors(run, collection, test=test, device=device) for run in runs]
    _, rules = protocol_named(collection.protocol)
    rules = replace(rules, modalities=main_direction(runs[-1], collection))
    named = {str(run.folder): vectors for run, vectors in zip(runs, stored, strict=True)}
    plan = plan_common_search(named, rules, ground_truth=collection.truth())
    matrix = []
    for i, run in enumerate(runs):
        asking = stored[i]
        row = [mean_average_precision(plan, rules, asking, stored[i], device=device)]
        for j in reversed(range(i)):
            asking = as_query(run if j == i - 1 else runs[j + 1], asking, device)
            row.append(mean_average_precision(plan, rules, asking, stored[j], device=device))
        matrix.append(row[::-1])
    return matrix


def as_query(run: Run, vectors: Vectors, device: torch.device) -> Vectors:
    """Vectors in the space of a model as they ask the gallery before it: mapped, if it maps."""
    if not run.maps_queries:
        return vectors
    query = run.sides().query.eval().to(device)
    with torch.no_grad():
        mapped = query(vectors.vectors.float().to(device)).cpu()
    return Vectors(vectors.ids, mapped, vectors.labels, columns=vectors.columns)
