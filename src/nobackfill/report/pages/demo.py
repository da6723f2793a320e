"""The report of the demo: the numbers, then what they look like inside the spaces."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from nobackfill.core.atomic_files import write_text
from nobackfill.evaluation.evaluate import Evaluation
from nobackfill.evaluation.geometry import (
    cosine_spread,
    crowded_groups,
    pair_cosines,
    principal_plane,
)
from nobackfill.evaluation.verdict import what_falls
from nobackfill.methods.prototypes import class_means
from nobackfill.models.embed import embed
from nobackfill.report.charts import heat_map, histograms
from nobackfill.report.html import render_html
from nobackfill.report.maps import maps, pictures
from nobackfill.report.page import Figure, Page, Section, Table
from nobackfill.report.svg import COLORS
from nobackfill.training.demo import SHOWN, Demo, conclude

TITLES = {
    "old": "old",
    "independent": "independent",
    "prototype_alignment": "prototype alignment",
    "bct": "BCT",
    "ndpp": "NDPP",
    "odpp": "ODPP",
}
SPACES = ("old", "prototype_alignment", "ndpp", "odpp")  # those that are drawn


def write_report(demo: Demo, *, device: torch.device) -> None:
    """Writes `report.html` into the demo's folder."""
    rows = demo.collection.training_rows(-1)
    labels = demo.collection.labels[rows]
    embeddings = {
        name: F.normalize(embed(demo.runs[name].model(device), demo.collection, rows).cpu(), dim=-1)
        for name in SPACES
    }
    prototypes = {
        name: class_means(part, labels, int(labels.max()) + 1) for name, part in embeddings.items()
    }
    best = best_upgrade(demo.evaluations)
    page = Page(
        title="Upgrading an embedding model without re-embedding the gallery",
        verdict=best.verdict,
        summary=[*conclude(demo.evaluations), *filter(None, [what_falls(best.summary())])],
        sections=[
            Section(
                "What each upgrade gains",
                "mAP in percent over test classes that no model was trained on. An upgrade is "
                "compatible if new/old beats old/old: then it may go live on the stored vectors. "
                "P-scores compare with the independent model; 50 is neutral.",
                tables=[results_table(demo.evaluations)],
            ),
            galleries_section(demo),
            families_section(demo, rows, labels, embeddings, prototypes),
            similarity_section(prototypes),
        ],
        not_measured=[
            "Other seeds: each model was trained once, so differences of less than a point may be "
            "chance.",
            "Real images: the glyphs are drawn, and small enough for a laptop.",
        ],
        made_of=made_of(demo),
    )
    write_text(demo.report, render_html(page))


def best_upgrade(evaluations: Mapping[str, Evaluation]) -> Evaluation:
    """The upgrade that serves the stored gallery best: the one that the summary is about."""
    upgrades = [one for name, one in evaluations.items() if name != "independent"]
    return max(upgrades, key=lambda one: one.new_old.mean_average_precision)


def made_of(demo: Demo) -> dict[str, str]:
    """Where the numbers come from."""
    first = next(iter(demo.evaluations.values()))
    recipe = demo.runs["old"].recipe
    old_classes, new_classes = demo.collection.class_counts[0], demo.collection.class_counts[-1]
    return {
        "collection": f"{recipe.data.name}, {len(demo.collection.ids):,} images",
        "classes trained on": f"{old_classes:,} by the old model, {new_classes:,} by the new ones",
        "searched": f"{len(first.query_ids):,} queries on {first.num_gallery:,} gallery items",
        "vectors": f"{demo.runs['old'].dim} dimensions",
        "training": f"{recipe.train.epochs} epochs each, on one seed",
    }


def results_table(evaluations: Mapping[str, Evaluation]) -> Table:
    """The numbers of every method, the best compatible one in bold."""
    columns = ["model", "old/old", "new/old", "new/new", "P_up", "P_comp", "P_1", "compatible"]
    compatible = [name for name in evaluations if evaluations[name].compatible]
    best = max(
        compatible, key=lambda name: evaluations[name].new_old.mean_average_precision, default=None
    )
    return Table(
        columns=columns,
        rows=[[TITLES.get(name, name), *cells(one)] for name, one in evaluations.items()],
        numbers=frozenset(columns[1:-1]),
        strong=None if best is None else list(evaluations).index(best),
    )


def cells(evaluation: Evaluation) -> list[str]:
    """One row of the table, as people read it: percent, and a dash for what cannot be said."""
    summary = evaluation.summary()
    percent = [summary[key] for key in ("old_old", "new_old", "new_new")]
    scores = [summary[key] for key in ("p_up", "p_comp", "p_1")]
    return [
        *("–" if value is None else f"{100 * value:.1f}" for value in percent),
        *("–" if value is None else f"{value:.1f}" for value in scores),
        "yes" if evaluation.compatible else "no",
    ]


def galleries_section(demo: Demo) -> Section:
    """Every model's queries on every model's gallery."""
    names = [TITLES[name] for name in demo.runs]
    lines = [
        f"Queries by {query}: "
        + ", ".join(
            f"{100 * value:.1f} on {gallery}" for gallery, value in zip(names, row, strict=True)
        )
        for query, row in zip(names, demo.matrix, strict=True)
    ]
    on_old = {name: row[0] for name, row in zip(names, demo.matrix, strict=True)}
    best = max(on_old, key=lambda name: on_old[name])
    says = (
        f"On the old gallery {best} finds most, {100 * on_old[best]:.1f} mAP; the old model has "
        f"{100 * on_old[TITLES['old']]:.1f} and the independent one "
        f"{100 * on_old[TITLES['independent']]:.1f}."
    )
    heads = [name.replace(" ", "\n") for name in names]
    return Section(
        "Who can search whose gallery",
        "mAP of every model's queries on every model's gallery. The first column is the "
        "day of the upgrade, the diagonal is after a full backfill. The independent model "
        "shares no space with anyone.",
        figures=[
            Figure(
                heat_map(np.array(demo.matrix), heads, heads),
                "mAP in percent, query by gallery",
                "\n".join([says, *lines]),
            )
        ],
    )


def families_section(
    demo: Demo,
    rows: Int[Tensor, " items"],
    labels: Int[Tensor, " items"],
    embeddings: Mapping[str, Float[Tensor, "items dim"]],
    prototypes: Mapping[str, Float[Tensor, "classes dim"]],
) -> Section:
    """Two families that the old model can hardly tell apart, in each space."""
    family = torch.from_numpy(demo.collection.columns["family"])[rows]
    family_of = torch.zeros(int(labels.max()) + 1, dtype=torch.int64).scatter(0, labels, family)
    figures = []
    for group in crowded_groups(prototypes["old"], family_of, 2):
        members = (family_of == group).nonzero().flatten()
        first = torch.stack([rows[labels == c][0] for c in members])
        figures.append(
            Figure(
                family_pictures(demo, first),
                f"Family {group}: one image of each class",
                f"{len(members)} drawings that share their strokes but one.",
            )
        )
        figures.append(
            Figure(
                family_maps(demo, members, labels, embeddings, prototypes["old"]),
                f"Family {group}: its images in each space",
                family_says(demo, members, prototypes),
            )
        )
    return Section(
        "Two crowded families, before and after",
        "The two families whose old prototypes lie closest. Siblings differ by one small stroke: "
        "above, one training image of each class in a frame of its colour. Below, all their "
        "training images in each space, on the plane that shows most of the family in the old "
        "space. Stars are the old prototypes; an arrow leads to where NDPP and ODPP moved them.",
        figures=figures,
    )


def family_pictures(demo: Demo, rows: Int[Tensor, " classes"]) -> str:
    """One image of each class, in a frame of its colour."""
    grey = [np.asarray((image[0] + 1) * 127.5) for image in demo.collection.view(rows)]
    return pictures(grey, [COLORS[index % len(COLORS)] for index in range(len(grey))])


def family_says(
    demo: Demo,
    members: Int[Tensor, " members"],
    prototypes: Mapping[str, Float[Tensor, "classes dim"]],
) -> str:
    """How near the classes of a family are in each space, and how far they were moved."""
    cosines = ", ".join(
        f"{TITLES[name]} {pair_cosines(part[members]).mean():.2f}"
        for name, part in prototypes.items()
    )
    moves = []
    for name in SPACES:
        moved = demo.runs[name].moved_prototypes()
        if moved is not None:
            cosine = F.cosine_similarity(moved[members], prototypes["old"][members], dim=-1)
            degrees = cosine.clamp(-1, 1).acos().rad2deg().mean()
            moves.append(f"{TITLES[name]} {degrees:.1f}°")
    return (
        f"Mean cosine of two of its {len(members)} prototypes (1: the same direction), in all "
        f"dimensions: {cosines}. The old prototypes were moved on average by {', '.join(moves)}."
    )


def family_maps(
    demo: Demo,
    members: Int[Tensor, " members"],
    labels: Int[Tensor, " items"],
    embeddings: Mapping[str, Float[Tensor, "items dim"]],
    old: Float[Tensor, "classes dim"],
) -> str:
    """The images of a family in each space, on the plane of the old space."""
    mine = torch.isin(labels, members)
    center, plane = principal_plane(embeddings["old"][mine])

    def flat(vectors: Float[Tensor, "rows dim"]) -> NDArray[Any]:
        return np.asarray((F.normalize(vectors, dim=-1) - center) @ plane)

    panels = {}
    for name in SPACES:
        panel = {"points": flat(embeddings[name][mine]), "prototypes": flat(old[members])}
        moved = demo.runs[name].moved_prototypes()
        if moved is not None:
            panel["moved"] = flat(moved[members])
        panels[TITLES[name]] = panel
    return maps(panels, np.searchsorted(members.numpy(), labels[mine].numpy()))


def similarity_section(prototypes: Mapping[str, Float[Tensor, "classes dim"]]) -> Section:
    """How similar the classes are in each space: fewer similar pairs are easier to tell apart."""
    every = {name: pair_cosines(part) for name, part in prototypes.items()}
    alike = (every["old"] > 0) & (every["prototype_alignment"] > 0)
    cosines = {name: cosine[alike] for name, cosine in every.items()}
    columns = ["space", "mean cosine", "pairs below 0", "spread", "spread, centred"]
    lines = [
        f"{TITLES[name]}: half of the pairs are above {cosine.median():.2f}, one in ten is above "
        f"{cosine.quantile(0.9):.2f}"
        for name, cosine in cosines.items()
    ]
    return Section(
        "How similar the prototypes of different classes are",
        f"Cosines between the class means of each model, for the {int(alike.sum()):,} pairs of "
        f"classes that are similar (cosine above 0) both in the old space and in that of "
        f"{TITLES['prototype_alignment']}. Mass further left means that classes which the old "
        f"model confuses have come apart.",
        tables=[
            Table(
                columns=columns,
                rows=[
                    [
                        TITLES[name],
                        f"{cosine.mean():.3f}",
                        f"{100 * (cosine < 0).float().mean():.1f} %",
                        f"{cosine_spread(prototypes[name]):.4f}",
                        f"{cosine_spread(prototypes[name], center=True):.4f}",
                    ]
                    for name, cosine in cosines.items()
                ],
                numbers=frozenset(columns[1:]),
            )
        ],
        figures=[
            Figure(
                histograms(
                    {TITLES[name]: np.asarray(cosine) for name, cosine in cosines.items()},
                    label="cosine of two prototypes",
                    marks={"0": 0.0},
                ),
                "Distribution of these cosines in each space",
                "\n".join(lines),
            )
        ],
    )


__all__ = ["SHOWN", "cells", "results_table", "write_report"]
