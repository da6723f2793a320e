"""The report of the demo: the numbers, then what they look like inside the spaces."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from nobackfill.analysis import cosine_spread, crowded_groups, pair_cosines, principal_plane
from nobackfill.demo import SHOWN, Demo, conclude
from nobackfill.embed import embed
from nobackfill.evaluation import Evaluation
from nobackfill.files import write_text
from nobackfill.prototypes import class_means
from nobackfill.report import Section, Table, render_page
from nobackfill.report.plots import COLORS, heat_map, histograms, maps, pictures

TITLES = {
    "old": "old",
    "independent": "independent",
    "prototype_alignment": "prototype alignment",
    "bct": "BCT",
    "ndpp": "NDPP",
    "odpp": "ODPP",
}
SPACES = ("old", "prototype_alignment", "ndpp", "odpp")  # those that are drawn
SAYS = {"old": "old", "prototype_alignment": "Baseline", "ndpp": "NDPP", "odpp": "ODPP"}


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
    names = [TITLES[name].replace(" ", "\n") for name in demo.runs]
    page = render_page(
        "Upgrading an embedding model without re-embedding the gallery",
        conclude(demo.evaluations),
        [
            Section(
                "What each upgrade gains",
                "mAP in percent over test classes that no model was trained on. An upgrade is "
                "compatible if new/old beats old/old: then it may go live on the stored vectors. "
                "P-scores compare with the independent model; 50 is neutral.",
                table=results_table(demo.evaluations),
            ),
            Section(
                "Who can search whose gallery",
                "mAP of every model's queries on every model's gallery. The first column is the "
                "day of the upgrade, the diagonal is after a full backfill. The independent model "
                "shares no space with anyone.",
                figures=[heat_map(np.array(demo.matrix), names, names)],
            ),
            families_section(demo, rows, labels, embeddings, prototypes),
            similarity_section(prototypes),
        ],
    )
    write_text(demo.report, page)


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
        figures.append(family_pictures(demo, first))
        figures.append(family_maps(demo, members, labels, embeddings, prototypes["old"]))
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
        panels[SAYS[name]] = panel
    return maps(panels, np.searchsorted(members.numpy(), labels[mine].numpy()))


def similarity_section(prototypes: Mapping[str, Float[Tensor, "classes dim"]]) -> Section:
    """How similar the classes are in each space: fewer similar pairs are easier to tell apart."""
    cosines = {name: pair_cosines(part) for name, part in prototypes.items()}
    alike = (cosines["old"] > 0) & (cosines["prototype_alignment"] > 0)
    spread = {
        name: (cosine_spread(part), cosine_spread(part, center=True))
        for name, part in prototypes.items()
    }
    return Section(
        "How similar the prototypes of different classes are",
        f"Cosines between the class means of each model, for the {int(alike.sum()):,} pairs of "
        f"classes that are similar (cosine above 0) in both the old and the Baseline's space. "
        f"Mass further left means that classes which the old model confuses have come apart.",
        table=Table(
            columns=["space", "mean cosine", "pairs below 0", "spread", "spread, centred"],
            rows=[
                [
                    TITLES[name],
                    f"{cosine[alike].mean():.3f}",
                    f"{100 * (cosine[alike] < 0).float().mean():.1f} %",
                    f"{spread[name][0]:.4f}",
                    f"{spread[name][1]:.4f}",
                ]
                for name, cosine in cosines.items()
            ],
            numbers=frozenset({"mean cosine", "pairs below 0", "spread", "spread, centred"}),
        ),
        figures=[
            histograms(
                {TITLES[name]: np.asarray(cosine[alike]) for name, cosine in cosines.items()},
                label="cosine of two prototypes",
                marks={"0": 0.0},
            )
        ],
    )


__all__ = ["SHOWN", "cells", "results_table", "write_report"]
