"""Does the new model serve the old gallery, and is it better than the old one?"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from math import isnan
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nobackfill.data.listing import GroundTruth
from nobackfill.errors import DataError
from nobackfill.evaluation.bootstrap import FEWEST_GROUPS, Interval, paired_interval
from nobackfill.evaluation.file_columns import columns_of
from nobackfill.evaluation.metrics import Retrieval, retrieval
from nobackfill.evaluation.notes import (
    Overlap,
    fitted_note,
    fitted_overlap,
    mixed_notes,
    query_notes,
    same_notes,
    space_notes,
)
from nobackfill.evaluation.pair_vectors import PairVectors
from nobackfill.evaluation.protocols import PROTOCOLS, Protocol, protocol_named
from nobackfill.evaluation.scores import PScores, compatibility, p_scores
from nobackfill.evaluation.search_plan import SearchPlan, plan_search
from nobackfill.evaluation.verdict import Verdict, is_compatible
from nobackfill.vectors import Vectors
from nobackfill.vectors.ids import is_in
from nobackfill.vectors.space import Space

__all__ = ["PROTOCOLS", "Evaluation", "Protocol", "compatibility", "evaluate", "p_scores"]


@dataclass(frozen=True)
class Flips:
    """How many queries change for the worse and for the better.

    Attributes:
        k: They have a hit in the top `k`, or have none.
        negative: The share that had one with the old model and has none with the new.
        positive: The share that had none and has one.
    """

    k: int
    negative: float
    positive: float


@dataclass(frozen=True, eq=False)
class Evaluation:
    """What was measured, always query/gallery.

    Attributes:
        old_old: The service as it is today.
        new_old: New queries against the old gallery: the day of the upgrade.
        new_new: After the whole gallery has been embedded again; None where it was not measured.
        independent: A new model trained without constraint, on its own gallery, if given.
        query_ids: Of the queries, in the order of every result.
        num_gallery: How many items were searched.
        protocol: The name of the protocol.
        query_groups: The class of each query: queries of one class rise and fall together.
        query_columns: What else the files tell of each query.
        plan: Who asked, who was searched, and what counts as found.
        vectors: Query and gallery vectors of each pair, to look into a search again; taken from
            the files when asked for.
        notes: What a reader should know about these numbers.
        seed: Of the drawing that intervals come from.
        modalities: Of those that asked and those that were searched; None where all did.
        old_space: What made the old gallery, if its file tells.
        query_space: What made the queries that asked it in new/old, if theirs does.
        fitted: How many items a head was fitted on, if its vectors tell.
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
        """Whether deploying without backfill beats not deploying (Shen et al., 2020).

        By the means alone; `verdict` asks whether the difference is more than chance.
        """
        return self.new_old.mean_average_precision > self.old_old.mean_average_precision

    @property
    def verdict(self) -> Verdict:
        """The same, where the difference is more than chance; "undecided" where it is not."""
        if not self.differences["new_old - old_old"].decided:
            return "undecided"
        return "compatible" if self.compatible else "not compatible"

    @cached_property
    def differences(self) -> dict[str, Interval]:
        """Differences of mAP between pairs, query by query, each with its 95 % interval."""
        pairs = self.pairs
        named = [
            (one, other)
            for one, other in (
                ("new_old", "old_old"),
                ("new_new", "old_old"),
                ("new_new", "new_old"),
                ("new_new", "independent"),
            )
            if one in pairs and other in pairs
        ]
        return {
            f"{one} - {other}": paired_interval(
                (pairs[one].average_precision - pairs[other].average_precision).numpy(),
                self.query_groups,
                seed=self.seed,
            )
            for one, other in named
        }

    @property
    def pairs(self) -> dict[str, Retrieval]:
        """What was measured, by the name of its pair."""
        measured = {
            "old_old": self.old_old,
            "new_old": self.new_old,
            "new_new": self.new_new,
            "independent": self.independent,
        }
        return {name: result for name, result in measured.items() if result is not None}

    @property
    def counted(self) -> NDArray[np.bool_]:
        """Whether each query counts: whether it has something to find."""
        return (self.old_old.num_relevant > 0).numpy()

    @property
    def gain_recovered(self) -> float | None:
        """Of what an unconstrained model and a whole backfill would gain, the share gained today.

        None without an independent model, or where that is no better than the old one.
        """
        if self.independent is None:
            return None
        today = self.old_old.mean_average_precision
        could = self.independent.mean_average_precision - today
        return (self.new_old.mean_average_precision - today) / could if could > 0 else None

    def flips(self, k: int) -> Flips:
        """Queries that lose, or win, their hit in the top `k` on the day of the upgrade."""
        before, after = self.old_old.found_by(k), self.new_old.found_by(k)
        queries = int(self.counted.sum())
        return Flips(
            k,
            negative=int((before & ~after).sum()) / queries,
            positive=int((~before & after).sum()) / queries,
        )

    @property
    def p_scores(self) -> PScores | None:
        """The P-scores, where an independent model makes them possible."""
        try:
            return self._p_scores()
        except DataError:
            return None

    def _p_scores(self) -> PScores | None:
        """The P-scores, or the reason why there are none."""
        if self.new_new is None or self.independent is None:
            return None
        return p_scores(
            self.new_new.mean_average_precision,
            self.new_old.mean_average_precision,
            self.old_old.mean_average_precision,
            self.independent.mean_average_precision,
        )

    def _entered(self) -> dict[str, float]:
        """The values that the P-scores were made of: M(n,n), M(n,o), M(o,o) and M*."""
        return {name: result.mean_average_precision for name, result in self.pairs.items()}

    def explained(self) -> "Evaluation":
        """The same, with a note where something cannot be told that a reader would look for."""
        notes = list(self.notes)
        classes = len(np.unique(self.query_groups[self.counted]))
        if classes < FEWEST_GROUPS:
            notes.append(
                f"no intervals: they need queries of at least {FEWEST_GROUPS} classes, and these "
                f"are of {classes}"
            )
        try:
            self._p_scores()
        except DataError as error:
            notes.append(f"no P-scores: {error}")
        return replace(self, notes=tuple(notes))

    def summary(self) -> dict[str, Any]:
        """The numbers as they go into JSON: fractions, and None for what was not measured."""
        pairs = dict.fromkeys(("old_old", "new_old", "new_new", "independent")) | self.pairs
        scores = self.p_scores
        return {
            **{name: _mean(result) for name, result in pairs.items()},
            "p_up": scores.up if scores else None,
            "p_comp": scores.comp if scores else None,
            "p_1": scores.one if scores else None,
            "gain_recovered": self.gain_recovered,
            "compatible": is_compatible(self.verdict),
            "verdict": self.verdict,
            "differences": {name: one.summary() for name, one in self.differences.items()},
            "metrics": {name: metrics_of(result) for name, result in self.pairs.items()},
            "flips": [asdict(self.flips(k)) for k in (1, 5, 10)],
            "recall_at_1": {
                name: result.recall(1) if result else None for name, result in pairs.items()
            },
            "p_scores_of": self._entered() if scores else None,
            "protocol": self.protocol,
            "searched": self.plan.fingerprint,
            "num_queries": int(self.counted.sum()),
            "num_asked": len(self.query_ids),
            "num_gallery": self.num_gallery,
            "notes": list(self.notes),
        }


def evaluate(
    old: Vectors,
    new: Vectors,
    *,
    new_query: Vectors | None = None,
    query_for_old: Vectors | None = None,
    independent: Vectors | None = None,
    protocol: str | None = None,
    modalities: tuple[str, str] | None = None,
    ground_truth: GroundTruth | None = None,
    intersect: bool = False,
    seed: int = 0,
    device: torch.device | str = "cpu",
    progress: Callable[[int, int], None] | None = None,
) -> Evaluation:
    """Compares an old and a new model on the same items: may the new one be deployed today?

    Items are matched by id. Who asks and who is searched stands in the columns `is_query` and
    `is_gallery` of the old file, or of the new if the old has none; without them every item
    queries all others. An item never finds itself. Labels come from the old file, or from the new
    if the old has none.

    Args:
        old: Vectors of the model in service.
        new: Vectors of the model that may take its place. Must cover the queries; where it has
            none of the gallery, new/new is not measured.
        new_query: The new model's query vectors, where they differ from its gallery vectors.
        query_for_old: The new model's queries as a map made them for the old gallery (the method
            `rm`): new/old asks with these, new/new does not.
        independent: Vectors of a new model trained without constraint: the ceiling.
        protocol: A name of `PROTOCOLS`; "plain" by default.
        modalities: Of those that ask and of those that are searched, in place of the protocol's;
            values of the column `modality`.
        ground_truth: What each query shall find, where labels do not say it.
        intersect: Whether items that only one file has are left out instead of being an error.
        seed: Of the drawing that intervals come from.
        device: Where to search.
        progress: Told from time to time how many searches are done, and of how many.
    """
    name, rules = protocol_named(protocol)
    asks = new if new_query is None else new_query
    asks_old = asks if query_for_old is None else query_for_old
    modalities = modalities or rules.modalities
    plan = plan_search(
        old,
        asks_old,
        new,
        same_camera=rules.same_camera,
        leave_one_out=rules.leave_one_out,
        modalities=modalities,
        intersect=intersect,
        ground_truth=ground_truth,
    )
    asks_itself = bool(is_in(plan.query_ids, asks.ids).all())
    lacking = () if asks_itself else ("new/new is not measured: the new file lacks queries",)
    files: dict[str, tuple[Vectors, Vectors, int | None]] = {
        "old_old": (old, old, None),
        "new_old": (asks_old, old, asks_old.compatible_dim),
    }
    if plan.new_has_gallery and asks_itself:
        files["new_new"] = asks, new, None
    if independent is not None:
        files["independent"] = independent, independent, None
    vectors = PairVectors(plan, files, device)
    found = search_pairs(plan, rules, vectors, progress=progress)
    counted = plan.query_ids[(found["old_old"].num_relevant > 0).numpy()]
    overlap = fitted_overlap((asks_old, new), counted, plan.gallery_ids)
    return Evaluation(
        old_old=found["old_old"],
        new_old=found["new_old"],
        new_new=found.get("new_new"),
        independent=found.get("independent"),
        query_ids=plan.query_ids,
        num_gallery=len(plan.gallery_ids),
        protocol=name,
        query_groups=_groups(plan),
        query_columns=columns_of((old, asks_old, new), plan.query_ids),
        plan=plan,
        vectors=vectors,
        notes=(
            *plan.notes,
            *lacking,
            *filter(None, [fitted_note(overlap)]),
            *same_notes(old, asks_old, plan),
            *space_notes(old, asks_old),
            *query_notes(new, query_for_old),
            *([] if modalities else mixed_notes((old, asks_old), plan)),
        ),
        seed=seed,
        modalities=modalities,
        old_space=old.space,
        query_space=asks_old.space,
        fitted=overlap,
    ).explained()


def search_pairs(
    plan: SearchPlan,
    protocol: Protocol,
    vectors: Mapping[str, tuple[Tensor, Tensor]],
    *,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Retrieval]:
    """Every pair of models, searched one after the other; raises where nothing can be found.

    Args:
        plan: Who asks, who is searched, and what counts as found.
        protocol: How that is counted.
        vectors: Query and gallery vectors of each pair, by name.
        progress: Told from time to time how many searches are done, and of how many.
    """
    found: dict[str, Retrieval] = {}
    for place, pair in enumerate(vectors):
        report = _part_of(progress, place, len(vectors), len(plan.query_ids))
        found[pair] = search_as_planned(plan, protocol, *vectors[pair], progress=report)
        if pair == "old_old" and not found[pair].num_relevant.any():
            raise DataError(f"wanted queries that have something to find, but {_why_nothing(plan)}")
    return found


def _why_nothing(plan: SearchPlan) -> str:
    """Why no query of a plan has anything to find, and what to do."""
    if plan.relevant is None:
        return (
            "no gallery item has the label of any query. Check the column of labels, and that "
            "queries and gallery are of the same classes."
        )
    return (
        "of what the ground truth lists for them nothing is in the gallery and counts; an item "
        "that asks does not count for itself. Check what it lists for each query."
    )


def _part_of(
    progress: Callable[[int, int], None] | None, place: int, pairs: int, queries: int
) -> Callable[[int], None] | None:
    """Counts the queries of one pair on from those of the pairs before it."""
    if progress is None:
        return None
    return lambda done: progress(place * queries + done, pairs * queries)


def search_as_planned(
    plan: SearchPlan,
    protocol: Protocol,
    query: Tensor,
    gallery: Tensor,
    *,
    progress: Callable[[int], None] | None = None,
) -> Retrieval:
    """One pair of models, searched as the plan and the protocol say.

    Args:
        plan: What counts as found, and what is passed over.
        protocol: How that is counted.
        query: A row for each of the plan's queries.
        gallery: A row for each of its gallery items.
        progress: Told from time to time how many queries are done.
    """
    return retrieval(
        query,
        gallery,
        plan.query_labels,
        plan.gallery_labels,
        query_camera=plan.query_camera,
        gallery_camera=plan.gallery_camera,
        relevant=plan.relevant,
        ignored=plan.ignored,
        at=protocol.at,
        area=protocol.area,
        progress=progress,
    )


def metrics_of(result: Retrieval) -> dict[str, float | None]:
    """What a search came to, in all the usual numbers."""
    return {
        "map": result.mean_average_precision,
        "map_at_100": result.precision_at(100),
        **{f"recall_at_{k}": result.recall(k) for k in (1, 5, 10)},
        "ndcg_at_10": result.ndcg(10),
        "in_order": None if isnan(result.in_order) else result.in_order,
    }


def _mean(result: Retrieval | None) -> float | None:
    return None if result is None else result.mean_average_precision


def _groups(plan: SearchPlan) -> NDArray[Any]:
    """Which queries rise and fall together: those of a class, or where none is told, each alone."""
    if plan.query_labels is None:
        return np.arange(len(plan.query_ids))
    return plan.query_labels.numpy()
