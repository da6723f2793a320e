"""The compatibility matrix: how queries by each model find what each model has stored."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import isnan
from typing import Any

import torch

from nobackfill.core.config import suggest
from nobackfill.data.listing import GroundTruth
from nobackfill.errors import ConfigError, DataError, SpaceMismatch
from nobackfill.evaluation.file_columns import rows_of
from nobackfill.evaluation.notes import maps_queries
from nobackfill.evaluation.protocols import Protocol, protocol_named
from nobackfill.evaluation.scores import Compatibility, PScores, compatibility, p_scores
from nobackfill.evaluation.search import search_as_planned
from nobackfill.evaluation.search_plan import SearchPlan, plan_search
from nobackfill.vectors import Vectors


@dataclass(frozen=True)
class UpgradeScores:
    """The P-scores of an upgrade, and what entered them beside new/old and new/new.

    Attributes:
        scores: None where there are none.
        old_old: What entered as M(o,o): a model's mAP on its own gallery.
        old_old_of: Which model's that is.
        independent: What entered as M*, likewise; None where nothing is given.
        independent_of: Which model's that is.
        reason: Why there are no scores.
    """

    scores: PScores | None
    old_old: float
    old_old_of: str
    independent: float | None
    independent_of: str | None
    reason: str | None = None

    def summary(self) -> dict[str, Any]:
        """As it goes into JSON, with the scores under the names that `evaluate` has for them."""
        scores = self.scores
        return {
            "p_up": scores.up if scores else None,
            "p_comp": scores.comp if scores else None,
            "p_1": scores.one if scores else None,
            **{key: value for key, value in asdict(self).items() if key != "scores"},
        }


@dataclass(frozen=True)
class Upgrade:
    """A step from one model to a newer one, over any number of models between them.

    Attributes:
        old: The name of the older model.
        new: The name of the newer model.
        old_old: The mAP of the service before.
        new_old: Of the newer model's queries on the older one's gallery; None if not comparable.
        new_new: Of the newer model on its own gallery.
        independent: Of the independent model that is given for the newer one, on its own gallery.
        p_scores: First with the older model's own old/old as M(o,o). Where an independent model
            is given for the older one too, then with that one's, as the paper's table of
            sequential upgrades has it.
    """

    old: str
    new: str
    old_old: float
    new_old: float | None
    new_new: float
    independent: float | None
    p_scores: tuple[UpgradeScores, ...]

    def summary(self) -> dict[str, Any]:
        """As it goes into JSON."""
        return {**asdict(self), "p_scores": [one.summary() for one in self.p_scores]}


@dataclass(frozen=True)
class CompatibilityMatrix:
    """How each model's queries find what each model has stored, always query/gallery.

    Attributes:
        names: Of the models, the oldest first.
        map: `map[i][j]` is the mAP of queries by model `i` on the gallery of model `j`; None where
            the query has fewer dimensions.
        independent: The mAP of independent models on their own galleries, by the name of the model
            that each was trained in place of.
        protocol: The name of the protocol.
        num_queries: How many asked.
        num_gallery: How many were searched.
        notes: What a reader should know about these numbers.

    Example:
        >>> matrix = CompatibilityMatrix(["old", "new"], [[0.5, 0.1], [0.6, 0.8]], {"new": 0.9})
        >>> matrix.ac, round(matrix.am, 4)
        (1.0, 0.6333)
        >>> matrix.upgrades[0].p_scores[0].scores
        PScores(up=47.2..., comp=56.2..., one=51.3...)
    """

    names: Sequence[str]
    map: Sequence[Sequence[float | None]]
    independent: Mapping[str, float] = field(default_factory=dict)
    protocol: str = "plain"
    num_queries: int = 0
    num_gallery: int = 0
    notes: tuple[str, ...] = ()

    @property
    def ac(self) -> float | None:
        """The share of upgrades that are compatible; None where an entry is missing."""
        return None if self._scores is None else self._scores.ac

    @property
    def am(self) -> float | None:
        """The mean of the lower triangle; None where an entry is missing."""
        return None if self._scores is None else self._scores.am

    @property
    def upgrades(self) -> list[Upgrade]:
        """Every step from a model to a newer one, by the newer one."""
        return [self._upgrade(i, j) for i in range(len(self.names)) for j in range(i)]

    def summary(self) -> dict[str, Any]:
        """The numbers as they go into JSON: fractions, and None for what was not measured."""
        return {
            "names": list(self.names),
            "map": [list(row) for row in self.map],
            "ac": self.ac,
            "am": self.am,
            "independent": dict(self.independent),
            "upgrades": [upgrade.summary() for upgrade in self.upgrades],
            "protocol": self.protocol,
            "num_queries": self.num_queries,
            "num_gallery": self.num_gallery,
            "notes": list(self.notes),
        }

    @property
    def _scores(self) -> Compatibility | None:
        """AC and AM, if the lower triangle is complete."""
        triangle = [
            [value for value in row[: i + 1] if value is not None] for i, row in enumerate(self.map)
        ]
        complete = all(len(row) == i + 1 for i, row in enumerate(triangle))
        return compatibility(triangle) if complete else None

    def _upgrade(self, i: int, j: int) -> Upgrade:
        """The step from model `j` to model `i`."""
        old, new = self.names[j], self.names[i]
        old_old, new_old, new_new = self.map[j][j], self.map[i][j], self.map[i][i]
        assert old_old is not None, "a model has as many dimensions as its own gallery"
        assert new_new is not None, "a model has as many dimensions as its own gallery"
        star = self.independent.get(new)
        entering = {old: old_old}
        if star is not None and old in self.independent:
            entering[_independent(old)] = self.independent[old]
        return Upgrade(
            old, new, old_old, new_old, new_new, star,
            p_scores=tuple(
                _score(new, new_new, new_old, value, of, star) for of, value in entering.items()
            ),
        )  # fmt: skip


def compatibility_matrix(
    models: Mapping[str, Vectors],
    *,
    protocol: str | None = None,
    ground_truth: GroundTruth | None = None,
    intersect: bool = False,
    independent: Mapping[str, Vectors] | None = None,
    device: torch.device | str = "cpu",
) -> CompatibilityMatrix:
    """Asks the gallery of every model with the queries of every model.

    Items are matched by id, and all files must have the same queries and gallery. Who asks and who
    is searched, labels and cameras are told by the first file that tells them; see `evaluate`. A
    query that is longer than the gallery's vectors is compared by its first dimensions.

    Args:
        models: Vectors of each model by its name, the oldest first.
        protocol: A name of `PROTOCOLS`; "plain" by default.
        ground_truth: What each query shall find, where labels do not say it.
        intersect: Whether items that a file lacks are left out instead of being an error.
        independent: Vectors of a model trained without constraint in place of one of `models`, by
            that one's name. They make P-scores possible.
        device: Where to search.
    """
    alone = independent or {}
    check_names(list(models), alone)
    name, rules = protocol_named(protocol)
    plan = plan_search(
        {f"`{model}`": file for model, file in models.items()},
        rules,
        covering={f"`{_independent(model)}`": file for model, file in alone.items()},
        intersect=intersect,
        ground_truth=ground_truth,
    )

    def search(query: Vectors, gallery: Vectors) -> float:
        return mean_average_precision(plan, rules, query, gallery, device=device)

    return CompatibilityMatrix(
        names=list(models),
        map=[
            [
                search(query, gallery) if query.dim >= gallery.dim else None
                for gallery in models.values()
            ]
            for query in models.values()
        ],
        independent={model: search(file, file) for model, file in alone.items()},
        protocol=name,
        num_queries=len(plan.query_ids),
        num_gallery=len(plan.gallery_ids),
        notes=(*plan.notes, *_dimension_notes(models), *_space_notes(models)),
    )


def mean_average_precision(
    plan: SearchPlan,
    protocol: Protocol,
    query: Vectors,
    gallery: Vectors,
    *,
    device: torch.device | str = "cpu",
) -> float:
    """Of one model's queries on another's gallery, whose dimensions are the query's first.

    Args:
        plan: Who asks, who is searched, and what counts as found.
        protocol: How that is counted.
        query: Vectors of the model that asks.
        gallery: Vectors of the model that is searched.
        device: Where to search.
    """
    if query.dim < gallery.dim:
        raise SpaceMismatch(
            f"wanted queries of at least the gallery's {gallery.dim} dimensions, but they have "
            f"{query.dim}. Compare models whose vectors keep their length, or grow."
        )
    asking = rows_of(query, plan.query_ids)[:, : gallery.dim].to(device)
    stored = rows_of(gallery, plan.gallery_ids).to(device)
    mean = search_as_planned(plan, protocol, asking, stored).mean_average_precision
    if isnan(mean):
        raise DataError(
            "wanted queries that have something to find, but none has anything in the gallery. "
            "Check the column `label` or the ground truth, and that queries and gallery are of the "
            "same classes."
        )
    return mean


def check_names(names: Sequence[str], independent: Iterable[str] = ()) -> None:
    """Raises where models cannot be told apart, or independent ones are of none of them.

    Args:
        names: Of the models, the oldest first.
        independent: The names of models that an independent one is given for.
    """
    if len(names) < 2:
        raise ConfigError(
            f"wanted at least two models, the oldest first, but got {len(names)}. One model alone "
            f"has no upgrade."
        )
    for name in names:
        if not name or names.count(name) > 1:
            raise ConfigError(
                f"wanted a name of its own for each model, but got {', '.join(map(repr, names))}. "
                f"Rename {name!r}."
            )
    for name in independent:
        if name not in names:
            raise ConfigError(f"unknown model `{name}`. {suggest(name, names)}")


def _score(
    new: str, new_new: float, new_old: float | None, old_old: float, of: str, star: float | None
) -> UpgradeScores:
    """The P-scores of a step to `new`, with `old_old` as M(o,o) and `star` as M*, or why not."""
    scores, reason = None, None
    if star is None:
        reason = f"no independent model is given for `{new}`"
    elif new_old is None:
        reason = "new/old was not measured"
    else:
        try:
            scores = p_scores(new_new, new_old, old_old, star)
        except DataError as error:
            reason = str(error)
    return UpgradeScores(
        scores, old_old, of, star, None if star is None else _independent(new), reason
    )


def _independent(name: str) -> str:
    """What the model is called that was trained without constraint in place of another."""
    return f"independent {name}"


def _dimension_notes(models: Mapping[str, Vectors]) -> list[str]:
    """What becomes of vectors of different length."""
    if len({file.dim for file in models.values()}) == 1:
        return []
    told = ", ".join(f"`{name}` {file.dim}" for name, file in models.items())
    notes = [
        f"the models differ in dimensions ({told}): longer queries are compared by their first "
        f"ones, shorter queries not at all"
    ]
    order = list(models)
    missing = [
        (new, old)
        for i, new in enumerate(order)
        for old in order[:i]
        if models[new].dim < models[old].dim
    ]
    if missing:
        new, old = missing[0]
        notes.append(
            f"no AC and AM: {len(missing)} of the entries below the diagonal cannot be measured, "
            f"the first being queries by `{new}` on the gallery of `{old}`"
        )
    return notes


def _space_notes(models: Mapping[str, Vectors]) -> list[str]:
    """What the files tell of their making that a reader should know."""
    notes: list[str] = []
    spaces = {name: file.space for name, file in models.items() if file.space is not None}
    by_fingerprint = {space.fingerprint: name for name, space in spaces.items()}
    order = list(models)
    for name, space in spaces.items():
        if maps_queries(space):
            notes.append(
                f"the method {space.method} of `{name}` maps its queries for older galleries, but "
                f"these are not mapped: its row means nothing but on its own gallery"
            )
        parent = by_fingerprint.get(space.parent or "")
        if parent is not None and order.index(parent) > order.index(name):
            notes.append(
                f"`{name}` was made compatible with `{parent}`, which comes after it: are the "
                f"models named oldest first?"
            )
    return notes
