"""All that one upgrade's report says, measured once: for people, and the same as JSON."""

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

from nobackfill.errors import DataError
from nobackfill.evaluation.confusion import ConfusedPair, confused_classes
from nobackfill.evaluation.geometry import cosine_spread, on_a_plane, uniformity
from nobackfill.evaluation.query_changes import Comparison, Flipped, Slice, compare
from nobackfill.evaluation.result import Evaluation
from nobackfill.evaluation.thresholds import Similarities, similarities
from nobackfill.methods.prototypes import class_means

LISTED = 1000  # queries that lose most, and as many that win most
VALUES = 500  # a column with more values than this is no slice but a name
DRAWN_CLASSES, DRAWN_ITEMS = 8, 60  # on the map, and of each class


@dataclass(frozen=True)
class SpaceFacts:
    """How a model's class means and items lie.

    Attributes:
        spread: Standard deviation of the cosines between class means; NaN with a single class.
        spread_centred: The same after their mean was taken off.
        uniformity: How evenly gallery items lie on the sphere; lower is more even.
    """

    spread: float
    spread_centred: float
    uniformity: float


@dataclass(frozen=True, eq=False)
class PlaneMap:
    """Some classes of the old gallery, and queries to it, laid out together in two dimensions.

    Attributes:
        kind: "tsne" or "pca".
        names: Of the classes.
        points: Of each part `gallery`, `old`, `new` (queries) and `means` the places.
        classes: Of each part the classes, as places in `names`.
    """

    kind: str
    names: Sequence[str]
    points: Mapping[str, NDArray[Any]]
    classes: Mapping[str, NDArray[Any]]


@dataclass(frozen=True, eq=False)
class Findings:
    """What was found about an upgrade.

    Attributes:
        evaluation: The numbers.
        lost: Queries that lose their first hit, the worst first.
        won: Queries that win one.
        slices: Of each column, what becomes of the queries with each value.
        smallest: How many queries a slice must have to be shown.
        confused: Classes that the old space cannot tell apart.
        similarities: Cosines and thresholds of each pair of models.
        spaces: How each model's space looks.
        map: Some classes to look at; None where none are known.
        not_measured: What is missing, and why.
    """

    evaluation: Evaluation
    lost: Sequence[Flipped]
    won: Sequence[Flipped]
    slices: Mapping[str, Sequence[Slice]]
    smallest: int
    confused: Sequence[ConfusedPair]
    similarities: Sequence[Similarities]
    spaces: Mapping[str, SpaceFacts]
    map: PlaneMap | None
    not_measured: Sequence[str] = field(default_factory=tuple)

    def summary(self) -> dict[str, Any]:
        """As it goes into JSON."""
        return {
            **self.evaluation.summary(),
            "lost": [asdict(one) for one in self.lost],
            "won": [asdict(one) for one in self.won],
            "slices": {
                column: [{**asdict(one), "difference": one.difference.summary()} for one in found]
                for column, found in self.slices.items()
            },
            "smallest_slice": self.smallest,
            "confused_classes": [asdict(one) for one in self.confused],
            "similarities": {one.pair: one.summary() for one in self.similarities},
            "spaces": {
                name: {key: None if isnan(value) else value for key, value in asdict(one).items()}
                for name, one in self.spaces.items()
            },
            "not_measured": list(self.not_measured),
        }


def look_into(evaluation: Evaluation, *, columns: Sequence[str] | None = None) -> Findings:
    """Looks at an evaluation from all sides.

    Args:
        evaluation: As `evaluate` returns it.
        columns: To slice by; by default `label` and all others with few enough values.
    """
    comparison = compare(evaluation)
    columns = _sliceable(evaluation) if columns is None else columns
    smallest = _smallest(evaluation)
    missing = _missing(evaluation)
    confused: Sequence[ConfusedPair] = ()
    spaces: Mapping[str, SpaceFacts] = {}
    drawn = None
    if evaluation.plan.gallery_labels is None:
        missing.append(
            "classes that the old space cannot tell apart: relevance comes from lists, not classes"
        )
    else:
        try:
            confused = confused_classes(evaluation)
            spaces = _spaces(evaluation)
            drawn = _draw(evaluation, confused)
        except DataError as error:  # a class without a mean direction
            missing.append(f"classes that the old space cannot tell apart, and the spaces: {error}")
    return Findings(
        evaluation=evaluation,
        lost=comparison.flipped(1, limit=LISTED),
        won=comparison.won(1, limit=LISTED),
        slices={name: comparison.slices(name, smallest=_least(name, smallest)) for name in columns},
        smallest=smallest,
        confused=confused,
        similarities=_similarities(comparison, missing),
        spaces=spaces,
        map=drawn,
        not_measured=tuple(missing),
    )


def _similarities(comparison: Comparison, missing: list[str]) -> list[Similarities]:
    try:
        return similarities(comparison)
    except DataError as error:
        missing.append(f"scores and thresholds: {error}")
        return []


def _missing(evaluation: Evaluation) -> list[str]:
    """What a reader may look for in vain."""
    missing = []
    if evaluation.new_new is None:
        missing.append("new/new: there are no new vectors of the gallery, or not of the queries")
    if evaluation.independent is None:
        missing.append(
            "P-scores and the share of the possible gain: no vectors of an independent model"
        )
    return [
        *missing,
        "live traffic: these are labelled queries, which may not be what people ask",
        "an approximate index: all searches here are exact",
    ]


def _sliceable(evaluation: Evaluation) -> list[str]:
    """Columns that say something of groups of queries: `label` first."""
    fixed = {"split", "is_query", "is_gallery", "text", "path"}
    known = {
        name: len(np.unique(values))
        for name, values in evaluation.query_columns.items()
        if name not in fixed and values.dtype.kind in "OSUTbiu"
    }
    others = [name for name, number in known.items() if name != "label" and 1 < number <= VALUES]
    return [*(["label"] if "label" in known else []), *others]


def _smallest(evaluation: Evaluation) -> int:
    """How many queries a slice must have: thirty, or fewer where there are few queries at all."""
    return max(2, min(30, len(evaluation.query_ids) // 20))


def _least(column: str, smallest: int) -> int:
    """Classes are shown however few queries they have."""
    return 1 if column == "label" else smallest


def _spaces(evaluation: Evaluation) -> dict[str, SpaceFacts]:
    """How each model's gallery lies, the old one's first."""
    galleries = {"old": "old_old", "new": "new_new", "independent": "independent"}
    found = {}
    for name, pair in galleries.items():
        if pair in evaluation.pairs:
            _, gallery = evaluation.vectors[pair]
            means = _means(evaluation, gallery.float())
            found[name] = SpaceFacts(
                cosine_spread(means), cosine_spread(means, center=True), uniformity(gallery.float())
            )
    return found


def _means(
    evaluation: Evaluation, gallery: Float[Tensor, "gallery dim"]
) -> Float[Tensor, "classes dim"]:
    """The class means of the gallery."""
    labels = evaluation.plan.gallery_labels
    assert labels is not None
    known, place = labels.unique(return_inverse=True)
    return class_means(gallery, place, len(known))


def _draw(evaluation: Evaluation, confused: Sequence[ConfusedPair]) -> PlaneMap | None:
    """The classes that are most alike in the old space, and who asks for them."""
    plan = evaluation.plan
    assert plan.gallery_labels is not None
    assert plan.query_labels is not None
    column = evaluation.query_columns["label"]
    names = list(dict.fromkeys(name for pair in confused for name in (pair.one, pair.other)))
    names = names[:DRAWN_CLASSES]
    if not names:
        return None
    numbers = [int(plan.query_labels[int(np.flatnonzero(column == name)[0])]) for name in names]
    stored, stored_class = _some_of(plan.gallery_labels, numbers)
    asking, asking_class = _some_of(plan.query_labels, numbers)
    old_query, gallery = (
        side[rows].cpu()
        for side, rows in zip(evaluation.vectors["old_old"], (asking, stored), strict=True)
    )
    new_query = evaluation.vectors["new_old"][0][asking].cpu()
    parts = {
        name: F.normalize(part.float(), dim=1)
        for name, part in (("gallery", gallery), ("old", old_query), ("new", new_query))
    }
    parts["means"] = class_means(gallery, stored_class, len(names))
    kind, points = on_a_plane(parts)
    classes = {"gallery": stored_class, "old": asking_class, "new": asking_class}
    return PlaneMap(
        kind,
        [str(name) for name in names],
        {name: np.asarray(part) for name, part in points.items()},
        {name: part.numpy() for name, part in classes.items()} | {"means": np.arange(len(names))},
    )


def _some_of(
    labels: Int[Tensor, " items"], numbers: Sequence[int]
) -> tuple[Int[Tensor, " some"], Int[Tensor, " some"]]:
    """Some items of each class: their rows, and their classes as places in `numbers`."""
    rows = [(labels == number).nonzero().flatten()[:DRAWN_ITEMS] for number in numbers]
    return torch.cat(rows), torch.repeat_interleave(torch.tensor([len(part) for part in rows]))
