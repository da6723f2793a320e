"""The result of an evaluation: mAP of each pair of models, intervals, verdict and scores."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from math import isnan
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from nobackfill.evaluation.bootstrap import FEWEST_GROUPS, Interval, paired_interval
from nobackfill.evaluation.metrics import Retrieval
from nobackfill.evaluation.notes import Overlap
from nobackfill.evaluation.scores import PScores, p_scores_or_reason
from nobackfill.evaluation.search_plan import SearchPlan
from nobackfill.evaluation.verdict import Verdict, is_compatible
from nobackfill.vectors.space import Space

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


@dataclass(frozen=True, eq=False)
class Evaluation:
    """The result of an evaluation. Pairs are named query/gallery.

    Attributes:
        old_old: The service before the upgrade.
        new_old: New queries on the old gallery: the service right after the upgrade.
        new_new: The service after a full backfill; None if it was not measured.
        independent: A new model trained without constraint, on its own gallery, if there is one.
        query_ids: Ids of the queries, in the order of every result.
        num_gallery: Number of gallery items.
        protocol: Name of the protocol.
        query_groups: Class of each query. Results of queries of one class are not independent.
        query_columns: Columns of the files, one value per query.
        plan: Queries, gallery and relevant items of the search.
        vectors: Query and gallery vectors of each pair, read from the files on access.
        notes: Notes for the reader of the results.
        seed: Random seed of the intervals.
        modalities: Modality of the queries and of the gallery; None if all items are searched.
        old_space: Space of the old gallery, if its file declares one.
        query_space: Space of the queries of new/old, if their file declares one.
        fitted: Number of items that a head was fitted on, if the files mark them.
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
    fitted: Overlap | None = None

    @property
    def compatible(self) -> bool:
        """Whether the upgrade without backfill improves mAP (Shen et al., 2020).

        It compares the means only; `verdict` checks whether the difference may be chance.
        """
        return self.new_old.mean_average_precision > self.old_old.mean_average_precision

    @property
    def verdict(self) -> Verdict:
        """Whether the upgrade is compatible; "undecided" if the difference may be chance."""
        if not self.differences["new_old - old_old"].decided:
            return "undecided"
        return "compatible" if self.compatible else "not compatible"

    @cached_property
    def differences(self) -> dict[str, Interval]:
        """Differences of mAP between pairs, each with its 95 % interval."""
        precision = {name: pair.average_precision.numpy() for name, pair in self.pairs.items()}
        return {
            f"{first} - {second}": paired_interval(
                precision[first] - precision[second], self.query_groups, seed=self.seed
            )
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
        """Shares of queries that lose or gain a hit in the top `k` by the upgrade."""
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
        """The same result, with notes on missing intervals and P-scores."""
        notes = list(self.notes)
        classes = len(np.unique(self.query_groups[self.counted]))
        if classes < FEWEST_GROUPS:
            notes.append(
                f"no intervals: they need queries of at least {FEWEST_GROUPS} classes, and these "
                f"are of {classes}"
            )
        if (reason := self._p_scores[1]) is not None:
            notes.append(f"no P-scores: {reason}")
        return replace(self, notes=tuple(notes))

    def summary(self) -> dict[str, Any]:
        """The numbers for JSON: fractions, and None for what was not measured."""
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
            "differences": {name: value.summary() for name, value in self.differences.items()},
            "metrics": {name: metrics_of(result) for name, result in pairs.items()},
            "flips": [asdict(self.flips(k)) for k in (1, 5, 10)],
            "recall_at_1": dict.fromkeys(PAIRS) | recall,
            "p_scores_of": means if scores else None,
            "protocol": self.protocol,
            "searched": self.plan.fingerprint,
            "num_queries": int(self.counted.sum()),
            "num_asked": len(self.query_ids),
            "num_gallery": self.num_gallery,
            "notes": list(self.notes),
        }


def metrics_of(result: Retrieval) -> dict[str, float | None]:
    """All metrics of a search, by their key in JSON."""
    return {
        "map": result.mean_average_precision,
        "map_at_100": result.precision_at(100),
        **{f"recall_at_{k}": result.recall(k) for k in (1, 5, 10)},
        "ndcg_at_10": result.ndcg(10),
        "in_order": None if isnan(result.in_order) else result.in_order,
    }
