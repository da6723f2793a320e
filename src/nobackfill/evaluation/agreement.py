"""Compares the rankings of two models without labels: how much changes, not what is better."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from nobackfill.core.page import Page, Readable
from nobackfill.data.listing import GroundTruth
from nobackfill.errors import DataError
from nobackfill.evaluation.evaluate import independent_queries, read_sides
from nobackfill.evaluation.file_columns import label_hint
from nobackfill.evaluation.identity import identity_doubts, relation_note
from nobackfill.evaluation.notes import query_notes, same_notes, space_notes
from nobackfill.evaluation.protocols import protocol_named
from nobackfill.evaluation.rankings import Ranking, rank_pairs
from nobackfill.evaluation.search import Progress
from nobackfill.evaluation.search_plan import SearchPlan, plan_search
from nobackfill.evaluation.verdict import Verdict
from nobackfill.vectors import Vectors
from nobackfill.vectors.ids import Ids, is_in
from nobackfill.vectors.matrix import Data

KS = (1, 10, 100)  # numbers of first results that are compared
SHOWN = 5  # results of each side that a person sees
QUERIES = 2_000  # largest number of queries that are compared
SAMPLE = 50  # largest number of changed queries that are listed
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)  # of the best score of each query
AGAINST = {"new_old": "old_old", "new_new": "old_old", "two_stage": "new_new"}


class Change(NamedTuple):
    """First results of a query before and after the upgrade."""

    query: Any  # id of the query
    before: list[Any]  # ids of the first results of the old query
    after: list[Any]  # ids of the first results of the new query
    scores_before: list[float]
    scores_after: list[float]

    @property
    def items(self) -> list[Any]:
        """The ids of the query and of its results."""
        return [self.query, *self.before, *self.after]


@dataclass(frozen=True, eq=False, repr=False)
class Agreement(Readable):
    """How far the rankings of two models agree. It says nothing about their quality.

    `print` shows its numbers.

    Attributes:
        rankings: First results by pair (query/gallery): "old_old", and those of "new_old",
            "new_new" and "two_stage" that were searched.
        query_ids: Ids of the queries.
        gallery_ids: Ids of the gallery items.
        num_asked: Number of queries that the sample was drawn from.
        protocol: Name of the protocol.
        seed: Seed of both samples: of the queries, and of the changes that are listed.
        notes: Notes for the reader.
        doubts: Reasons to doubt that the vectors belong to their items.
        head: Name of the map by which new queries search the old gallery, if one was fitted.
        reranked: Number of first results that a second stage ranks again, if there is one.
        hint: Columns that may be labels, if there are any.
    """

    rankings: Mapping[str, Ranking]
    query_ids: Ids
    gallery_ids: Ids
    num_asked: int
    protocol: str = "plain"
    seed: int = 0
    notes: Sequence[str] = ()
    doubts: Sequence[str] = ()
    head: str = ""
    reranked: int = 0
    hint: str = ""

    @property
    def verdict(self) -> Verdict:
        """Always "undecided": the right results are unknown."""
        return "undecided"

    def page(self) -> Page:
        """Returns the page that `print` and `nobackfill evaluate` show."""
        from nobackfill.evaluation.agreement_overview import agreement_page

        return agreement_page(self)

    def __repr__(self) -> str:
        k = min(self.depths[-1], 10)
        shares = (f"{pair} {100 * share[k]:.1f} %" for pair, share in self.overlaps().items())
        return (
            f"Agreement(overlap of the top {k}: {', '.join(shares).replace('_', '/')}, "
            f"{len(self.query_ids):,} queries, {len(self.gallery_ids):,} gallery items)"
        )

    def overlaps(self) -> dict[str, dict[int, float]]:
        """Returns the mean overlap of the first k results, by pair and k; see `AGAINST`.

        New/old and new/new are compared with old/old, a second stage with new/new.
        """
        places = {pair: ranking.places for pair, ranking in self.rankings.items()}
        return {
            pair: {
                k: float(overlap(places[pair], places[AGAINST[pair]], k).mean())
                for k in self.depths
            }
            for pair in places
            if pair in AGAINST
        }

    @property
    def depths(self) -> list[int]:
        """The numbers of first results at which rankings may differ."""
        return [k for k in KS if k <= self.depth]

    @property
    def depth(self) -> int:
        """Number of first results of each ranking."""
        return self.rankings["old_old"].places.shape[1]

    @property
    def is_changed(self) -> Bool[np.ndarray, " query"]:
        """Marks the queries whose first results on the old gallery change, or their order."""
        before, after = (self.rankings[pair].places[:, :SHOWN] for pair in ("old_old", "new_old"))
        return (before != after).any(dim=1).numpy()

    def changes(self, limit: int = SAMPLE) -> list[Change]:
        """Returns a random sample of the changed queries, the same for the same seed."""
        if "new_old" not in self.rankings:
            return []
        rows = np.random.default_rng(self.seed).permutation(np.flatnonzero(self.is_changed))
        return [self._change(row) for row in rows[:limit].tolist()]

    def _change(self, row: int) -> Change:
        sides = [self.rankings[pair] for pair in ("old_old", "new_old")]
        ids = [self.gallery_ids[side.places[row, :SHOWN].numpy()].tolist() for side in sides]
        scores = [side.scores[row, :SHOWN].tolist() for side in sides]
        return Change(self.query_ids[row].item(), *ids, *scores)

    def summary(self) -> dict[str, Any]:
        """Returns the numbers for JSON; the quality is unknown: None and "undecided"."""
        best = {pair: ranking.scores[:, 0] for pair, ranking in self.rankings.items()}
        return {
            "verdict": self.verdict,
            "compatible": None,
            "quality_measured": False,
            "overlap": {
                pair: {str(k): share for k, share in shares.items()}
                for pair, shares in self.overlaps().items()
            },
            "best_score": {pair: spread_of(scores) for pair, scores in best.items()},
            "below_old_p5": {
                pair: share_below(scores, best["old_old"]) for pair, scores in best.items()
            },
            "changed": float(self.is_changed.mean()) if "new_old" in self.rankings else None,
            "shown": SHOWN,
            "sample": [change._asdict() for change in self.changes()],
            "num_queries": len(self.query_ids),
            "num_asked": self.num_asked,
            "num_gallery": len(self.gallery_ids),
            "protocol": self.protocol,
            "head": self.head or None,
            "reranked": self.reranked or None,
            "doubts": list(self.doubts),
            "notes": list(self.notes),
        }


def overlap(
    first: Int[Tensor, "query depth"], second: Int[Tensor, "query other"], k: int
) -> Float[Tensor, " query"]:
    r"""Returns the share of the first `k` results that two rankings have in common, for each query.

    .. math::
        \frac{|A_k \cap B_k|}{k}

    Example:
        >>> overlap(torch.tensor([[3, 1, 2]]), torch.tensor([[1, 3, 5]]), 2)
        tensor([1.], dtype=torch.float64)
    """
    both = torch.cat([first[:, :k], second[:, :k]], dim=1).sort(dim=1).values
    return (both[:, 1:] == both[:, :-1]).sum(dim=1).double() / k


def spread_of(scores: Float[Tensor, " query"]) -> dict[str, float]:
    """Returns the mean and quantiles of the best scores, by their key in JSON."""
    values = scores.double().numpy()
    quantiles = zip(QUANTILES, np.quantile(values, QUANTILES), strict=True)
    return {"mean": float(values.mean())} | {
        f"p{100 * share:.0f}": float(value) for share, value in quantiles
    }


def share_below(scores: Float[Tensor, " query"], old: Float[Tensor, " old"]) -> float:
    """Returns the share of the scores below the 5 % quantile of the old ones.

    A threshold that refuses 5 % of the old queries refuses this share of the others.
    """
    return float((scores.double().numpy() < np.quantile(old.double().numpy(), 0.05)).mean())


def compare_rankings(
    old: Data,
    new: Data,
    *,
    ids: Any = None,
    query_for_old: Data | None = None,
    protocol: str | None = None,
    intersect: bool = False,
    sessions: str | None = None,
    seed: int = 0,
    device: torch.device | str = "cpu",
    progress: Progress | None = None,
) -> Agreement:
    """Compares the rankings of an old and a new model without labels.

    At most 2,000 queries are compared, drawn by the seed. New queries search the old gallery if
    they have its dimension; new/new is searched if the new file has the gallery. Arguments are
    those of `evaluate`.
    """
    (old, new, query_for_old), assumed = read_sides(
        {"old": old, "new": new, "query_for_old": query_for_old}, columns=(), ids=ids
    )
    queries = new if query_for_old is None else query_for_old
    name, plan, number = plan_unlabelled(
        old, new, queries, protocol=protocol, intersect=intersect, seed=seed
    )
    plan, _, seen, _ = independent_queries(plan, old, queries, new, sessions, device)

    # search every pair that the files have
    dim = queries.compatible_dim or queries.dim
    files: dict[str, tuple[Vectors, Vectors, int | None]] = {"old_old": (old, old, None)}
    if dim == old.dim:
        files["new_old"] = queries, old, dim
    if plan.new_has_gallery and is_in(plan.query_ids, new.ids).all():
        files["new_new"] = new, new, None
    rankings = rank_pairs(plan, files, device, progress)

    # collect notes for the reader
    notes = [*assumed, *plan.notes, *filter(None, [seen.note]), *space_notes(old, queries)]
    doubts = [*filter(None, [seen.doubt])]
    if "new_old" in files:
        doubts += identity_doubts(old, queries, plan, device)
        notes += same_notes(old, queries, plan) + query_notes(new, query_for_old)
        notes += [] if doubts else relation_note(old, queries, plan)
    else:
        notes.append(
            f"new/old was not compared: new queries have {dim} dimensions and old vectors "
            f"{old.dim}; `nobackfill assess` fits a head that maps them"
        )
    return Agreement(
        rankings,
        plan.query_ids,
        plan.gallery_ids,
        number,
        name,
        seed,
        notes + doubts,
        doubts,
        hint=label_hint((old, new)),
    )


def plan_unlabelled(
    old: Vectors,
    new: Vectors,
    queries: Vectors,
    *,
    protocol: str | None = None,
    intersect: bool = False,
    seed: int = 0,
) -> tuple[str, SearchPlan, int]:
    """Returns the protocol's name, the search with sampled queries, and the number of all."""
    name, rules = protocol_named(protocol)
    if not rules.same_camera:
        raise DataError(
            f"the protocol `{name}` ignores items of the query's label, but neither file has "
            f"labels. Leave the protocol out."
        )
    plan = plan_search(
        {"the old file": old, "the new file": queries},
        rules,
        new_gallery=new,
        intersect=intersect,
        ground_truth=GroundTruth({}),
    )
    number = len(plan.query_ids)
    if number <= QUERIES:
        return name, plan, number
    marks = np.zeros(number, dtype=bool)
    marks[np.random.default_rng(seed).choice(number, QUERIES, replace=False)] = True
    return name, plan.keep(marks), number
