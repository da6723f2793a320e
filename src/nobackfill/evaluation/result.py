"""The result of an evaluation: mAP of each pair of models, intervals, verdict and scores."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from math import isnan
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from nobackfill.core.page import Page, Readable
from nobackfill.evaluation.bootstrap import (
    FEWEST_EFFECTIVE,
    FEWEST_GROUPS,
    Interval,
    effective_groups,
    paired_interval,
)
from nobackfill.evaluation.gate import Gate, change_of, lost_first_hits
from nobackfill.evaluation.metrics import Retrieval
from nobackfill.evaluation.scores import PScores, p_scores_or_reason
from nobackfill.evaluation.search_plan import SearchPlan
from nobackfill.evaluation.verdict import Verdict, is_compatible
from nobackfill.vectors.space import Space

if TYPE_CHECKING:
    from pandas import DataFrame

PAIRS = ("old_old", "new_old", "new_new", "independent")
DIFFERENCES = (
    ("new_old", "old_old"),
    ("new_new", "old_old"),
    ("new_new", "new_old"),
    ("new_new", "independent"),
)


@dataclass(frozen=True)
class Flips:
    """Shares of queries that lose or gain a hit in the top `k`."""

    k: int  # number of first results
    negative: float  # share of queries with a hit by the old model and none by the new one
    positive: float  # share of queries with a hit by the new model and none by the old one


@dataclass(frozen=True, eq=False, repr=False)
class Evaluation(Readable):
    """The result of an evaluation; `print` shows its numbers. Pairs are named query/gallery.

    Attributes:
        old_old: The service before the upgrade.
        new_old: New queries on the old gallery: the service right after the upgrade.
        new_new: The service after a full backfill; None if it was not measured.
        independent: A new model trained without constraint, on its own gallery, if there is one.
        query_ids: Ids of the queries, in the order of every result.
        num_gallery: Number of gallery items.
        protocol: Name of the protocol.
        query_groups: Group of each query. Results of queries of one group are not independent.
        query_columns: Columns of the files, one value per query.
        plan: Queries, gallery and relevant items of the search.
        vectors: Query and gallery vectors of each pair, read from the files on access.
        notes: Notes for the reader of the results.
        seed: Random seed of the intervals.
        modalities: Modality of the queries and of the gallery; None if all items are searched.
        old_space: Space of the old gallery, if its file declares one.
        query_space: Space of the queries of new/old, if their file declares one.
        num_seen: Number of queries left out, because a head has seen items of their group.
        gate: Requirements on new/old for the verdict "compatible".
        doubts: Reasons why the numbers prove nothing; with any, the verdict is "undecided".
    """

    old_old: Retrieval
    new_old: Retrieval
    new_new: Retrieval | None
    independent: Retrieval | None
    query_ids: NDArray[Any]
    num_gallery: int
    protocol: str
    query_groups: NDArray[Any]
    query_columns: Mapping[str, NDArray[Any]]
    plan: SearchPlan
    vectors: Mapping[str, tuple[Tensor, Tensor]]
    notes: tuple[str, ...] = ()
    seed: int = 0
    modalities: tuple[str, str] | None = None
    old_space: Space | None = None
    query_space: Space | None = None
    num_seen: int = 0
    gate: Gate = Gate()
    doubts: tuple[str, ...] = ()

    def page(self) -> Page:
        """Returns the page that `print` and `nobackfill evaluate` show."""
        from nobackfill.evaluation.overview import evaluation_page

        return evaluation_page(self)

    def to_pandas(self) -> "DataFrame":
        """Returns a DataFrame of one row per query: its results in every pair. Requires pandas."""
        from nobackfill.evaluation.query_changes import compare

        return compare(self).to_pandas()

    def __repr__(self) -> str:
        means = (
            f"{name.replace('_', '/')} {100 * pair.mean_average_precision:.2f}"
            for name, pair in self.pairs.items()
        )
        return (
            f"Evaluation({self.verdict!r}, mAP {', '.join(means)}, {len(self.query_ids):,} "
            f"queries, {self.num_gallery:,} gallery items)"
        )

    @property
    def compatible(self) -> bool:
        """The criterion of Shen et al. (2020): new/old has a higher mAP than old/old.

        It compares two means; `verdict` checks whether the difference may be chance, and weighs
        other metrics too.
        """
        return self.new_old.mean_average_precision > self.old_old.mean_average_precision

    @property
    def verdict(self) -> Verdict:
        """Whether the upgrade may go live, by `gate`; "undecided" if there is any doubt."""
        if self.doubts:
            return "undecided"
        return self.gate.decide(self.changes, self.negative_flips)

    @cached_property
    def changes(self) -> dict[str, Interval]:
        """Change of each metric of the gate from old/old to new/old, with its 95 % interval."""
        return {
            name: self._interval(change_of(name, self.old_old, self.new_old))
            for name in self.gate.metrics
        }

    @cached_property
    def negative_flips(self) -> Interval:
        """Share of queries that lose their first hit, with its 95 % interval."""
        return self._interval(lost_first_hits(self.old_old, self.new_old))

    def _interval(self, values: NDArray[np.float64]) -> Interval:
        return paired_interval(values, self.query_groups, seed=self.seed)

    @cached_property
    def differences(self) -> dict[str, Interval]:
        """Differences of mAP between pairs, each with its 95 % interval."""
        precision = {name: pair.average_precision.numpy() for name, pair in self.pairs.items()}
        return {
            f"{first} - {second}": self._interval(precision[first] - precision[second])
            for first, second in DIFFERENCES
            if first in precision and second in precision
        }

    @property
    def pairs(self) -> dict[str, Retrieval]:
        """The results of the pairs that were measured, by name."""
        results = {name: getattr(self, name) for name in PAIRS}
        return {name: result for name, result in results.items() if result is not None}

    @property
    def counted(self) -> NDArray[np.bool_]:
        """Marks the queries that count: those with a relevant item."""
        return (self.old_old.num_relevant > 0).numpy()

    @property
    def gain_recovered(self) -> float | None:
        """Gain of new/old as a share of the gain of an independent model with a full backfill.

        None without an independent model, or if that is no better than the old one.
        """
        if self.independent is None:
            return None
        before = self.old_old.mean_average_precision
        possible = self.independent.mean_average_precision - before
        return (self.new_old.mean_average_precision - before) / possible if possible > 0 else None

    def flips(self, k: int) -> Flips:
        """Returns the shares of queries that lose or gain a hit in the top `k` by the upgrade."""
        before, after = self.old_old.found_by(k), self.new_old.found_by(k)
        queries = int(self.counted.sum())
        return Flips(
            k,
            negative=int((before & ~after).sum()) / queries,
            positive=int((~before & after).sum()) / queries,
        )

    @property
    def p_scores(self) -> PScores | None:
        """The P-scores; None without an independent model that is better than the old one."""
        return self._p_scores[0]

    @property
    def _p_scores(self) -> tuple[PScores | None, str | None]:
        """The P-scores, or the reason why there are none although both models were measured."""
        if self.new_new is None or self.independent is None:
            return None, None
        pairs = (self.new_new, self.new_old, self.old_old, self.independent)
        return p_scores_or_reason(*(pair.mean_average_precision for pair in pairs))

    def explained(self) -> "Evaluation":
        """Returns the same result, with notes on missing intervals and P-scores."""
        notes = list(self.notes)
        _, sizes = np.unique(self.query_groups[self.counted], return_counts=True)
        if len(sizes) < FEWEST_GROUPS:
            notes.append(
                f"no intervals: they need queries of at least {FEWEST_GROUPS} independent groups, "
                f"such as classes, and these are of {len(sizes)}"
            )
        elif effective_groups(sizes.astype(np.float64)) < FEWEST_EFFECTIVE:
            notes.append(
                f"no intervals: one class holds {sizes.max():,} of {sizes.sum():,} queries, so the "
                f"other {len(sizes) - 1} hardly count"
            )
        if (reason := self._p_scores[1]) is not None:
            notes.append(f"no P-scores: {reason}")
        return replace(self, notes=tuple(notes))

    def summary(self) -> dict[str, Any]:
        """Returns the numbers for JSON: fractions, and None for what was not measured."""
        pairs, scores = self.pairs, self.p_scores
        means = {name: result.mean_average_precision for name, result in pairs.items()}
        recall = {name: result.recall(1) for name, result in pairs.items()}
        return {
            **dict.fromkeys(PAIRS),
            **means,
            "p_up": scores.up if scores else None,
            "p_comp": scores.comp if scores else None,
            "p_1": scores.one if scores else None,
            "gain_recovered": self.gain_recovered,
            "compatible": is_compatible(self.verdict),
            "verdict": self.verdict,
            "new_old_above_old_old": self.compatible,
            "changes": {name: change.summary() for name, change in self.changes.items()},
            "negative_flips": self.negative_flips.summary(),
            "gate": asdict(self.gate) | {"metrics": list(self.gate.metrics)},
            "doubts": list(self.doubts),
            "differences": {name: value.summary() for name, value in self.differences.items()},
            "metrics": {name: metrics_of(result) for name, result in pairs.items()},
            "flips": [asdict(self.flips(k)) for k in (1, 5, 10)],
            "recall_at_1": dict.fromkeys(PAIRS) | recall,
            "p_scores_of": means if scores else None,
            "protocol": self.protocol,
            "searched": self.plan.fingerprint,
            "num_queries": int(self.counted.sum()),
            "num_asked": len(self.query_ids),
            "num_seen": self.num_seen,
            "num_gallery": self.num_gallery,
            "notes": list(self.notes),
        }


def metrics_of(result: Retrieval) -> dict[str, float | None]:
    """Returns all metrics of a search, by their key in JSON."""
    return {
        "map": result.mean_average_precision,
        "map_at_100": result.precision_at(100),
        **{f"recall_at_{k}": result.recall(k) for k in (1, 5, 10)},
        "ndcg_at_10": result.ndcg(10),
        "in_order": None if isnan(result.in_order) else result.in_order,
    }
