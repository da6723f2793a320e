"""All measurements of the report of an upgrade: for pages, and the same for JSON."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import isnan
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from nobackfill.core.short import Short
from nobackfill.errors import DataError
from nobackfill.evaluation.confusion import ConfusedPair, confused_classes
from nobackfill.evaluation.geometry import cosine_spread, uniformity
from nobackfill.evaluation.overview import not_measured
from nobackfill.evaluation.query_changes import Flipped, Slice, compare
from nobackfill.evaluation.result import Evaluation
from nobackfill.evaluation.thresholds import Similarities, similarities
from nobackfill.evaluation.tsne import on_a_plane
from nobackfill.methods.prototypes import class_means

LISTED = 1000  # queries listed that lose most, and as many that gain most
VALUES = 500  # most values of a column that queries are sliced by
DRAWN_CLASSES, DRAWN_ITEMS = 8, 60  # classes on the map, and items of each class
NOT_SLICED = {"split", "is_query", "is_gallery", "text", "path"}


@dataclass(frozen=True)
class SpaceFacts:
    """Geometry of a gallery."""

    spread: float  # standard deviation of the cosines between class means; NaN with a single class
    spread_centred: float  # the same after subtracting the mean of the class means
    uniformity: float  # uniformity of the items on the sphere; lower is more even


@dataclass(frozen=True, eq=False)
class PlaneMap:
    """Classes of the old gallery and queries on it, laid out together in two dimensions."""

    kind: str  # "tsne" or "pca"
    names: Sequence[str]  # names of the classes
    # points of each part: `gallery`, `old` and `new` (queries), and `means`
    points: Mapping[str, NDArray[Any]]
    classes: Mapping[str, NDArray[Any]]  # classes of the points of each part, as indices of `names`


@dataclass(frozen=True, eq=False, repr=False)
class Findings(Short):
    """All measurements of an upgrade."""

    evaluation: Evaluation  # evaluation of the upgrade
    lost: Sequence[Flipped]  # queries that lose their first hit, the worst first
    won: Sequence[Flipped]  # queries that gain a first hit
    # results of the queries with each value of a column, by column
    slices: Mapping[str, Sequence[Slice]]
    smallest: int  # smallest number of queries of a slice
    confused: Sequence[ConfusedPair]  # pairs of classes that the old space confuses
    similarities: Sequence[Similarities]  # cosines and thresholds of each pair of models
    spaces: Mapping[str, SpaceFacts]  # geometry of each gallery
    map: PlaneMap | None  # layout of some classes; None without classes
    not_measured: Sequence[str] = field(default_factory=tuple)  # missing measurements, with reasons

    def summary(self) -> dict[str, Any]:
        """Returns the measurements for JSON."""
        return {
            **self.evaluation.summary(),
            "lost": [asdict(query) for query in self.lost],
            "won": [asdict(query) for query in self.won],
            "slices": {
                column: [{**asdict(part), "difference": part.difference.summary()} for part in rows]
                for column, rows in self.slices.items()
            },
            "smallest_slice": self.smallest,
            "confused_classes": [asdict(pair) for pair in self.confused],
            "similarities": {pair.pair: pair.summary() for pair in self.similarities},
            "spaces": {
                name: {key: None if isnan(value) else value for key, value in asdict(facts).items()}
                for name, facts in self.spaces.items()
            },
            "not_measured": list(self.not_measured),
        }


def findings_of(evaluation: Evaluation, *, columns: Sequence[str] | None = None) -> Findings:
    """Measures everything that the report of an upgrade shows.

    By default, queries are sliced by `label` and all columns with few enough values.
    """
    comparison = compare(evaluation)
    missing = not_measured(evaluation)
    # classes and spaces
    confused: Sequence[ConfusedPair] = ()
    spaces: Mapping[str, SpaceFacts] = {}
    plane = None
    if evaluation.plan.gallery_labels is None:
        missing.append(
            "classes that the old space cannot tell apart: relevance comes from lists, not classes"
        )
    else:
        try:
            confused = confused_classes(evaluation)
            spaces = _spaces(evaluation)
            plane = _draw(evaluation, confused)
        except DataError as error:  # a class without a mean direction
            missing.append(f"classes that the old space cannot tell apart, and the spaces: {error}")
    # scores and thresholds
    scores: list[Similarities] = []
    try:
        scores = similarities(comparison)
    except DataError as error:
        missing.append(f"scores and thresholds: {error}")
    # slices; classes are shown even with a single query
    smallest = max(2, min(30, len(evaluation.query_ids) // 20))
    columns = _sliceable(evaluation) if columns is None else columns
    return Findings(
        evaluation=evaluation,
        lost=comparison.flipped(1, limit=LISTED),
        won=comparison.won(1, limit=LISTED),
        slices={
            name: comparison.slices(name, smallest=1 if name == "label" else smallest)
            for name in columns
        },
        smallest=smallest,
        confused=confused,
        similarities=scores,
        spaces=spaces,
        map=plane,
        not_measured=tuple(missing),
    )


def _sliceable(evaluation: Evaluation) -> list[str]:
    """Returns the columns with groups of queries: `label` first."""
    numbers = {
        name: len(np.unique(values))
        for name, values in evaluation.query_columns.items()
        if name not in NOT_SLICED and values.dtype.kind in "OSUTbiu"
    }
    others = [name for name, number in numbers.items() if name != "label" and 1 < number <= VALUES]
    return [*(["label"] if "label" in numbers else []), *others]


def _spaces(evaluation: Evaluation) -> dict[str, SpaceFacts]:
    """Returns the geometry of the gallery of each model, the old one first."""
    galleries = {"old": "old_old", "new": "new_new", "independent": "independent"}
    spaces = {}
    for name, pair in galleries.items():
        if pair in evaluation.pairs:
            gallery = evaluation.vectors[pair][1].float()
            means = _means(evaluation, gallery)
            spaces[name] = SpaceFacts(
                cosine_spread(means), cosine_spread(means, center=True), uniformity(gallery)
            )
    return spaces


def _means(
    evaluation: Evaluation, gallery: Float[Tensor, "gallery dim"]
) -> Float[Tensor, "classes dim"]:
    """Returns the class means of the gallery."""
    labels = evaluation.plan.gallery_labels
    assert labels is not None
    classes, number = labels.unique(return_inverse=True)
    return class_means(gallery, number, len(classes))


def _draw(evaluation: Evaluation, confused: Sequence[ConfusedPair]) -> PlaneMap | None:
    """Lays out the classes that are most similar in the old space, and their queries."""
    plan = evaluation.plan
    assert plan.gallery_labels is not None
    assert plan.query_labels is not None
    # choose classes and items
    names = list(dict.fromkeys(name for pair in confused for name in (pair.one, pair.other)))
    names = names[:DRAWN_CLASSES]
    if not names:
        return None
    column = evaluation.query_columns["label"]
    numbers = [int(plan.query_labels[int(np.flatnonzero(column == name)[0])]) for name in names]
    gallery_rows, gallery_classes = _first_items(plan.gallery_labels, numbers)
    query_rows, query_classes = _first_items(plan.query_labels, numbers)
    # lay out their vectors
    old_query, gallery = evaluation.vectors["old_old"]
    gallery, old_query = gallery[gallery_rows].cpu(), old_query[query_rows].cpu()
    new_query = evaluation.vectors["new_old"][0][query_rows].cpu()
    parts = {
        name: F.normalize(part.float(), dim=1)
        for name, part in (("gallery", gallery), ("old", old_query), ("new", new_query))
    }
    parts["means"] = class_means(gallery, gallery_classes, len(names))
    kind, points = on_a_plane(parts)
    classes = {"gallery": gallery_classes, "old": query_classes, "new": query_classes}
    return PlaneMap(
        kind,
        [str(name) for name in names],
        {name: np.asarray(part) for name, part in points.items()},
        {name: part.numpy() for name, part in classes.items()} | {"means": np.arange(len(names))},
    )


def _first_items(
    labels: Int[Tensor, " items"], numbers: Sequence[int]
) -> tuple[Int[Tensor, " drawn"], Int[Tensor, " drawn"]]:
    """Returns rows of the first items of each class, and their classes as indices of `numbers`."""
    rows = [(labels == number).nonzero().flatten()[:DRAWN_ITEMS] for number in numbers]
    return torch.cat(rows), torch.repeat_interleave(torch.tensor([len(part) for part in rows]))
