"""The compatibility matrix: mAP of every model's queries on every model's gallery."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any

import torch

from nobackfill.core.notebook import data_frame
from nobackfill.core.page import Page, Readable
from nobackfill.core.suggest import suggest
from nobackfill.data.listing import GroundTruth
from nobackfill.errors import ConfigError, SpaceMismatch
from nobackfill.evaluation.notes import dimension_notes, order_notes
from nobackfill.evaluation.protocols import Protocol, protocol_named
from nobackfill.evaluation.scores import (
    Compatibility,
    PScores,
    compatibility,
    p_scores_or_reason,
)
from nobackfill.evaluation.search import PairVectors, part_of, search_as_planned
from nobackfill.evaluation.search_plan import SearchPlan, plan_search
from nobackfill.vectors import Vectors

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True)
class UpgradeScores:
    """The P-scores of an upgrade, and the values that they are computed from."""

    scores: PScores | None  # P-scores; None if there are none
    old_old: float  # mAP of a model on its own gallery, used as M(o,o)
    old_old_of: str  # name of that model
    # mAP of an independent model on its own gallery, used as M*, if there is one
    independent: float | None
    independent_of: str | None  # name of that model
    reason: str | None = None  # reason why there are no scores

    def summary(self) -> dict[str, Any]:
        """Returns the numbers for JSON, with the keys of `evaluate`."""
        scores = self.scores
        return {
            "p_up": scores.up if scores else None,
            "p_comp": scores.comp if scores else None,
            "p_1": scores.one if scores else None,
            **{key: value for key, value in asdict(self).items() if key != "scores"},
        }


@dataclass(frozen=True)
class Upgrade:
    """An upgrade from one model to any newer one."""

    old: str  # name of the older model
    new: str  # name of the newer model
    old_old: float  # mAP of the older model on its own gallery
    new_old: float | None  # mAP of new queries on the older gallery; None if not comparable
    new_new: float  # mAP of the newer model on its own gallery
    independent: float | None  # mAP of the independent model of the newer one on its own gallery
    # P-scores with old/old as M(o,o). If the older model has an independent model too, a second
    # entry uses its mAP, as in the paper's table of sequential upgrades
    p_scores: tuple[UpgradeScores, ...]

    def summary(self) -> dict[str, Any]:
        """Returns the numbers for JSON."""
        return {**asdict(self), "p_scores": [scores.summary() for scores in self.p_scores]}


@dataclass(frozen=True, repr=False)
class CompatibilityMatrix(Readable):
    """mAP of every model's queries on every model's gallery; `print` shows it.

    Attributes:
        names: Names of the models, the oldest first.
        map: `map[i][j]` is the mAP of queries by model `i` on the gallery of model `j`; None if
            the query has fewer dimensions.
        independent: mAP of independent models on their own galleries, by the name of the model
            that each replaces.
        protocol: Name of the protocol.
        num_queries: Number of queries.
        num_gallery: Number of gallery items.
        notes: Notes for the reader of the results.

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

    def page(self) -> Page:
        """Returns the page that `print` and `nobackfill matrix` show."""
        from nobackfill.evaluation.matrix_overview import matrix_page

        return matrix_page(self)

    def __repr__(self) -> str:
        scores = "" if self.ac is None else f", AC {self.ac:.2f}, AM {self.am:.3f}"
        return (
            f"CompatibilityMatrix({len(self.names)} models{scores}, "
            f"{self.num_queries:,} queries, {self.num_gallery:,} gallery items)"
        )

    def to_pandas(self) -> "DataFrame":
        """Returns a DataFrame of mAP: queries (rows) on galleries (columns). Requires pandas."""
        columns = zip(self.names, zip(*self.map, strict=True), strict=True)
        frame = data_frame({"query by": self.names, **{name: list(maps) for name, maps in columns}})
        return frame.set_index("query by")

    @property
    def ac(self) -> float | None:
        """The share of upgrades that are compatible; None if an entry is missing."""
        return None if self._scores is None else self._scores.ac

    @property
    def am(self) -> float | None:
        """The mean of the lower triangle; None if an entry is missing."""
        return None if self._scores is None else self._scores.am

    @property
    def upgrades(self) -> list[Upgrade]:
        """The upgrades from every model to every newer one, ordered by the newer one."""
        return [self._upgrade(i, j) for i in range(len(self.names)) for j in range(i)]

    def summary(self) -> dict[str, Any]:
        """Returns the numbers for JSON: fractions, and None for what was not measured."""
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
        """Returns the upgrade from model `j` to model `i`."""
        old, new = self.names[j], self.names[i]
        old_old, new_old, new_new = self.map[j][j], self.map[i][j], self.map[i][i]
        assert old_old is not None, "a model has as many dimensions as its own gallery"
        assert new_new is not None, "a model has as many dimensions as its own gallery"
        independent = self.independent.get(new)
        references = {old: old_old}  # values of M(o,o)
        if independent is not None and old in self.independent:
            references[_independent(old)] = self.independent[old]
        scores = tuple(
            _score(new, new_new, new_old, value, name, independent)
            for name, value in references.items()
        )
        return Upgrade(old, new, old_old, new_old, new_new, independent, p_scores=scores)


def compatibility_matrix(
    models: Mapping[str, Vectors],
    *,
    protocol: str | None = None,
    ground_truth: GroundTruth | None = None,
    intersect: bool = False,
    independent: Mapping[str, Vectors] | None = None,
    device: torch.device | str = "cpu",
    progress: Callable[[int, int], None] | None = None,
) -> CompatibilityMatrix:
    """Searches the gallery of every model with the queries of every model.

    Items are matched by id, and all files must have the same queries and gallery. Columns are read
    from the first file that has them; see `evaluate`. A query with more dimensions than the
    gallery is compared by its first dimensions.

    Args:
        models: Vectors of each model by its name, the oldest first.
        protocol: Name in `PROTOCOLS`; "plain" by default.
        ground_truth: Relevant items of each query, in place of labels.
        intersect: Whether to leave out items that a file lacks, instead of raising an error.
        independent: Vectors of a model trained without constraint in place of one of `models`, by
            its name. P-scores need them.
        device: Device of the search.
        progress: Called with the number of searches done and the number of all searches.
    """
    independent = independent or {}
    check_names(list(models), independent)
    name, rules = protocol_named(protocol)
    plan = plan_search(
        {f"`{model}`": file for model, file in models.items()},
        rules,
        covering={f"`{_independent(model)}`": file for model, file in independent.items()},
        intersect=intersect,
        ground_truth=ground_truth,
    )

    files, queries = models.values(), len(plan.query_ids)
    number = sum(query.dim >= gallery.dim for query in files for gallery in files)
    before = count(step=queries)

    def search(query: Vectors, gallery: Vectors) -> float:
        report = part_of(progress, next(before), (number + len(independent)) * queries)
        return mean_average_precision(plan, rules, query, gallery, device=device, progress=report)

    return CompatibilityMatrix(
        names=list(models),
        map=[
            [
                search(query, gallery) if query.dim >= gallery.dim else None
                for gallery in models.values()
            ]
            for query in models.values()
        ],
        independent={model: search(file, file) for model, file in independent.items()},
        protocol=name,
        num_queries=len(plan.query_ids),
        num_gallery=len(plan.gallery_ids),
        notes=(*plan.notes, *dimension_notes(models), *order_notes(models)),
    )


def mean_average_precision(
    plan: SearchPlan,
    protocol: Protocol,
    query: Vectors,
    gallery: Vectors,
    *,
    device: torch.device | str = "cpu",
    progress: Callable[[int], None] | None = None,
) -> float:
    """Returns the mAP of one model's queries on another model's gallery.

    A query with more dimensions than the gallery is compared by its first dimensions. `progress`
    receives the number of queries that are done.
    """
    if query.dim < gallery.dim:
        raise SpaceMismatch(
            f"queries need at least the gallery's {gallery.dim} dimensions, but they have "
            f"{query.dim}. Compare models whose number of dimensions stays the same, or grows."
        )
    pair = PairVectors(plan, {"pair": (query, gallery, gallery.dim)}, device)["pair"]
    return search_as_planned(plan, protocol, *pair, progress=progress).mean_average_precision


def check_names(names: Sequence[str], independent: Iterable[str] = ()) -> None:
    """Raises if names of models are not unique, or if an independent model has an unknown name."""
    if len(names) < 2:
        raise ConfigError(
            f"a matrix needs at least two models, the oldest first, but got {len(names)}. One "
            f"model alone has no upgrade."
        )
    for name in names:
        if not name or names.count(name) > 1:
            raise ConfigError(
                f"each model needs a name of its own, but the names are "
                f"{', '.join(map(repr, names))}. Rename {name!r}."
            )
    for name in independent:
        if name not in names:
            raise ConfigError(f"unknown model `{name}`. {suggest(name, names)}")


def _score(
    new: str,
    new_new: float,
    new_old: float | None,
    old_old: float,
    old_old_of: str,
    independent: float | None,
) -> UpgradeScores:
    """Returns the P-scores of an upgrade to `new`, or the reason why there are none."""
    scores, reason = None, None
    if independent is None:
        reason = f"no independent model is given for `{new}`"
    elif new_old is None:
        reason = "new/old was not measured"
    else:
        scores, reason = p_scores_or_reason(new_new, new_old, old_old, independent)
    independent_of = None if independent is None else _independent(new)
    return UpgradeScores(scores, old_old, old_old_of, independent, independent_of, reason)


def _independent(name: str) -> str:
    """Returns the name of the independent model of a model."""
    return f"independent {name}"
