"""Sections on class means of several models: spread of their cosines, similar pairs, a map."""

import numpy as np

from nobackfill.core.numbers import listed, maybe
from nobackfill.core.page import Figure, Section, Table
from nobackfill.evaluation.geometry import SimilarityHistogram, similarity_histogram
from nobackfill.report.charts import step_curves
from nobackfill.report.class_spaces import ClassSpaces
from nobackfill.report.maps import LAYOUTS, maps
from nobackfill.report.seeds import BASELINE

WHERE = {"training": "classes of the training set", "searched": "searched classes"}


def spaces_section(spaces: ClassSpaces) -> list[Section]:
    """The spread and a map of class means and, beside the Baseline, the pairs that are similar."""
    columns = ["space", "spread", "spread, centred"]
    rows = [
        [name, f"{plain:.4f}", f"{centred:.4f}"] for name, (plain, centred) in spaces.spread.items()
    ]
    first = len(next(iter(spaces.means.values())))
    sections = [
        Section(
            "How evenly class means are spread",
            f"Standard deviation of the cosines between class means, low if classes are evenly "
            f"apart: {first:,} {WHERE[spaces.place]}. Centred: after subtracting the mean of all.",
            tables=[Table(columns, rows, frozenset(columns[1:]))],
            figures=map_figures(spaces),
        )
    ]
    if {"old", BASELINE} <= spaces.means.keys():
        similarity = similarity_histogram(spaces.means, ("old", BASELINE))
        sections.append(similarity_section(similarity, WHERE[spaces.place]))
    return sections


def map_figures(spaces: ClassSpaces) -> list[Figure]:
    """The map of some classes by each model; no figure without one."""
    if (drawn := spaces.map) is None:
        return []
    return [
        Figure(
            lambda: maps(drawn.panels, drawn.classes),
            f"Training items of the classes most alike in the old space, by each model; stars are "
            f"class means, arrows lead to prototypes as the method moved them; "
            f"{LAYOUTS[drawn.kind]}",
            f"Classes {listed(drawn.names)} in the spaces of {listed(list(drawn.panels))}.",
        )
    ]


def similarity_section(similarity: SimilarityHistogram, where: str = "classes") -> Section:
    """The similarity of class means in each space."""
    columns = ["space", "mean cosine", "pairs below 0"]
    rows = [
        [
            name,
            f"{similarity.mean[name]:.3f}",
            maybe(similarity.below_zero[name], unit=" %"),
        ]
        for name in similarity.counts
    ]
    counts = {name: np.asarray(part) for name, part in similarity.counts.items()}
    return Section(
        "How similar different classes are",
        f"Cosines between the class means of each model, for the {similarity.pairs:,} pairs of "
        f"{where} that are similar (cosine above 0) in the spaces of "
        f"{listed(similarity.alike_in)}.",
        tables=[Table(columns, rows, frozenset(columns[1:]))],
        figures=[
            Figure(
                lambda: step_curves(
                    counts, np.asarray(similarity.edges), label="cosine of two class means"
                ),
                "Similarity of class means",
                "; ".join(f"{name}: mean {value:.3f}" for name, value in similarity.mean.items())
                + ".",
            )
        ],
    )
