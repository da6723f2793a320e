"""The report of the demo: the methods compared, and two families of classes in each space."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from nobackfill.core.atomic_files import write_text
from nobackfill.core.page import Figure, Page, Section, Table
from nobackfill.evaluation.geometry import (
    crowded_groups,
    pair_cosines,
    similarity_histogram,
)
from nobackfill.evaluation.matrix import CompatibilityMatrix
from nobackfill.evaluation.tsne import principal_plane
from nobackfill.evaluation.verdict import what_falls
from nobackfill.methods.prototypes import class_means
from nobackfill.models.embed import embed
from nobackfill.report.html import render_html
from nobackfill.report.maps import maps
from nobackfill.report.pages.matrix import matrix_section
from nobackfill.report.pages.runs import numbers_section, plane_section
from nobackfill.report.pages.spaces import similarity_section
from nobackfill.report.seeds import Outcome, comparison_of
from nobackfill.report.thumbnails import as_cell, show_collection
from nobackfill.training.demo import Demo, conclude

TITLES = {
    "old": "old",
    "independent": "independent",
    "prototype_alignment": "prototype alignment",
    "bct": "BCT",
    "ndpp": "NDPP",
    "odpp": "ODPP",
}
SPACES = ("old", "prototype_alignment", "ndpp", "odpp")  # spaces that are drawn


def write_report(demo: Demo, *, device: torch.device) -> Page:
    """Writes `report.html` into the demo's folder; returns the page."""
    page = demo_page(demo, device=device)
    write_text(demo.report, render_html(page))
    return page


def demo_page(demo: Demo, *, device: torch.device) -> Page:
    """The comparison of the methods, and the spaces of some of them."""
    upgrades = [result for name, result in demo.evaluations.items() if name != "independent"]
    best = max(upgrades, key=lambda result: result.new_old.mean_average_precision)
    recipe, (old_classes, *_, new_classes) = demo.runs["old"].recipe, demo.collection.class_counts
    table = comparison_of(
        [
            Outcome(name, TITLES[name], recipe.train.seed, evaluation.summary())
            for name, evaluation in demo.evaluations.items()
        ]
    )

    # embed the training items and compute the class means
    rows = demo.collection.training_rows(-1)
    labels = demo.collection.labels[rows]
    embeddings = {
        name: F.normalize(embed(demo.runs[name].model(device), demo.collection, rows).cpu(), dim=-1)
        for name in SPACES
    }
    prototypes = {
        name: class_means(vectors, labels, int(labels.max()) + 1)
        for name, vectors in embeddings.items()
    }
    named = {TITLES[name]: means for name, means in prototypes.items()}

    return Page(
        title="Upgrading an embedding model without re-embedding the gallery",
        verdict=best.verdict,
        summary=[*conclude(demo.evaluations), *filter(None, [what_falls(best.summary())])],
        sections=[
            replace(
                numbers_section(table),
                text="mAP in percent over test classes that no model was trained on. An upgrade is "
                "compatible if new/old beats old/old: then it may go live on the stored vectors. "
                "P-scores compare with the independent model; 50 is neutral.",
            ),
            matrix_section(CompatibilityMatrix([TITLES[name] for name in demo.runs], demo.matrix)),
            *plane_section(table),
            families_section(demo, rows, labels, embeddings, prototypes),
            similarity_section(similarity_histogram(named, (*named,)[:2])),
        ],
        not_measured=[
            "Other seeds: each model was trained once, so differences of less than a point may be "
            "chance.",
            "Real images: the glyphs are drawn, and small enough for a laptop.",
        ],
        made_of={
            "collection": f"{recipe.data.name}, {len(demo.collection.ids):,} images",
            "classes trained on": f"{old_classes:,} by the old model, {new_classes:,} by the new "
            f"ones",
            "searched": f"{len(best.query_ids):,} queries on {best.num_gallery:,} gallery items",
            "vectors": f"{demo.runs['old'].dim} dimensions",
            "training": f"{recipe.train.epochs} epochs each, on one seed",
        },
    )


def families_section(
    demo: Demo,
    rows: Int[Tensor, " items"],
    labels: Int[Tensor, " items"],
    embeddings: Mapping[str, Float[Tensor, "items dim"]],
    prototypes: Mapping[str, Float[Tensor, "classes dim"]],
) -> Section:
    """Two families of classes that are similar in the old space, in each space."""
    family = torch.from_numpy(demo.collection.columns["family"])[rows]
    family_of = torch.zeros(int(labels.max()) + 1, dtype=torch.int64).scatter(0, labels, family)
    tables, figures = [], []
    for group in crowded_groups(prototypes["old"], family_of, 2):
        members = (family_of == group).nonzero().flatten()
        ids = [demo.collection.ids[rows[labels == label][0]] for label in members]
        pictures = as_cell(ids, show_collection(demo.collection)(ids))
        tables.append(Table(["one image of each class"], [[pictures]], caption=f"Family {group}"))
        figures.append(family_figure(demo, group, members, labels, embeddings, prototypes))
    return Section(
        "Two crowded families, before and after",
        "The two families whose old prototypes are most similar. Siblings differ by one small "
        "stroke. The maps show all their training images in each space, on the plane that shows "
        "most of the family in the old space. Stars are the old prototypes; an arrow leads to "
        "where NDPP and ODPP moved them.",
        tables=tables,
        figures=figures,
    )


def family_figure(
    demo: Demo,
    group: int,
    members: Int[Tensor, " members"],
    labels: Int[Tensor, " items"],
    embeddings: Mapping[str, Float[Tensor, "items dim"]],
    prototypes: Mapping[str, Float[Tensor, "classes dim"]],
) -> Figure:
    """Maps of the images of a family in each space, on the plane of the old space."""
    own = torch.isin(labels, members)
    center, plane = principal_plane(embeddings["old"][own])
    old = prototypes["old"][members]
    cosines, angles, panels = [], [], {}
    for name in SPACES:
        cosine = pair_cosines(prototypes[name][members]).mean()
        cosines.append(f"{TITLES[name]} {cosine:.2f}")
        panel = {"points": embeddings[name][own], "prototypes": old}
        if (moved := demo.runs[name].moved_prototypes()) is not None:
            panel["moved"] = moved[members]
            angle = F.cosine_similarity(moved[members], old, dim=-1).clamp(-1, 1).acos().rad2deg()
            angles.append(f"{TITLES[name]} {angle.mean():.1f}°")
        panels[TITLES[name]] = {
            part: np.asarray((F.normalize(vectors, dim=-1) - center) @ plane)
            for part, vectors in panel.items()
        }
    classes = np.searchsorted(members.numpy(), labels[own].numpy())
    return Figure(
        lambda: maps(panels, classes),
        f"Family {group}: its images in each space",
        f"Mean cosine of two of its {len(members)} prototypes (1: the same direction), in all "
        f"dimensions: {', '.join(cosines)}. The old prototypes were moved on average by "
        f"{', '.join(angles)}.",
    )
