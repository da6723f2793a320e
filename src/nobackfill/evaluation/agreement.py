"""Compares the rankings of two models without labels: how much changes, not what is better."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor

from nobackfill.data.listing import GroundTruth
from nobackfill.errors import DataError
from nobackfill.evaluation.evaluate import independent_queries
from nobackfill.evaluation.file_columns import rows_of
from nobackfill.evaluation.identity import identity_doubts, relation_note
from nobackfill.evaluation.notes import query_notes, same_notes, space_notes
from nobackfill.evaluation.protocols import protocol_named
from nobackfill.evaluation.search_plan import SearchPlan, plan_search
from nobackfill.ops.nearest import best_by_partition, best_by_topk, rows_per_block
from nobackfill.vectors import Vectors
from nobackfill.vectors.ids import Ids, is_in

KS = (1, 10, 100)  # numbers of first results that are compared
SHOWN = 5  # results of each side that a person sees
QUERIES = 2_000  # largest number of queries that are compared
SAMPLE = 50  # largest number of changed queries that are listed
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)  # of the best score of each query
NO_LABELS = "quality: without labels, pairs or groups nobody knows which results are right"
AGAINST = {"new_old": "old_old", "new_new": "old_old", "two_stage": "new_old"}

Progress = Callable[[int, int], None]  # receives the numbers of done and of all queries


class Ranking(NamedTuple):
    """First results of each query, best first."""

    places: Int[Tensor, "query k"]  # rows of the gallery
    scores: Float[Tensor, "query k"]  # their cosines


class Change(NamedTuple):
    """First results of a query before and after the upgrade."""

    query: Any  # id of the query
    before: list[Any]  # ids of the first results of the old query
    after: list[Any]  # ids of the first results of the new query
    scores_before: list[float]
    scores_after: list[float]


@dataclass(frozen=True, eq=False)
class Agreement:
    """How far the rankings of two models agree. It says nothing about their quality.

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
    """

    rankings: Mapping[str, Ranking]
    query_ids: Ids
    gallery_ids: Ids
    num_asked: int
    protocol: str = "plain"
    seed: int = 0
    notes: Sequence[str] = ()
    doubts: Sequence[str] = ()

    def overlaps(self) -> dict[str, dict[int, float]]:
        """Mean overlap of the first k results, by pair and k: each pair against that of `AGAINST`.

        New/old and new/new are compared with old/old, a second stage with the first one, new/old.
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
        depth = self.rankings["old_old"].places.shape[1]
        return [k for k in KS if k <= depth]

    @property
    def is_changed(self) -> Bool[np.ndarray, " query"]:
        """Marks the queries whose first results on the old gallery change, or their order."""
        before, after = (self.rankings[pair].places[:, :SHOWN] for pair in ("old_old", "new_old"))
        return (before != after).any(dim=1).numpy()

    def changes(self, limit: int = SAMPLE) -> list[Change]:
        """A random sample of the changed queries, the same for the same seed."""
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
        """The numbers for JSON; None and "undecided" stand for the quality, which is unknown."""
        best = {pair: ranking.scores[:, 0] for pair, ranking in self.rankings.items()}
        return {
            "verdict": "undecided",
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
            "doubts": list(self.doubts),
            "notes": list(self.notes),
        }


def overlap(
    first: Int[Tensor, "query depth"], second: Int[Tensor, "query other"], k: int
) -> Float[Tensor, " query"]:
    r"""Share of the first `k` results that two rankings have in common, for each query.

    .. math::
        \frac{|A_k \cap B_k|}{k}

    Example:
        >>> overlap(torch.tensor([[3, 1, 2]]), torch.tensor([[1, 3, 5]]), 2)
        tensor([1.], dtype=torch.float64)
    """
    both = torch.cat([first[:, :k], second[:, :k]], dim=1).sort(dim=1).values
    return (both[:, 1:] == both[:, :-1]).sum(dim=1).double() / k


def spread_of(scores: Float[Tensor, " query"]) -> dict[str, float]:
    """Mean and quantiles of the best scores, by their key in JSON."""
    values = scores.double().numpy()
    quantiles = zip(QUANTILES, np.quantile(values, QUANTILES), strict=True)
    return {"mean": float(values.mean())} | {
        f"p{100 * share:.0f}": float(value) for share, value in quantiles
    }


def share_below(scores: Float[Tensor, " query"], old: Float[Tensor, " old"]) -> float:
    """Share of the scores below the 5 % quantile of the old ones.

    A threshold that refuses 5 % of the old queries refuses this share of the others.
    """
    return float((scores.double().numpy() < np.quantile(old.double().numpy(), 0.05)).mean())


def compare_rankings(
    old: Vectors,
    new: Vectors,
    *,
    query_for_old: Vectors | None = None,
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

    # collect what a reader should know
    notes = [*plan.notes, *filter(None, [seen.note]), *space_notes(old, queries)]
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
        rankings, plan.query_ids, plan.gallery_ids, number, name, seed, notes + doubts, doubts
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
    """The protocol's name, the search with a sample of its queries, and the number of all."""
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


def rank_pairs(
    plan: SearchPlan,
    files: Mapping[str, tuple[Vectors, Vectors, int | None]],
    device: torch.device | str,
    progress: Progress | None = None,
) -> dict[str, Ranking]:
    """First results of each pair of files (query, gallery, dimensions of a query), by name."""
    rankings: dict[str, Ranking] = {}
    number = len(plan.query_ids)
    for place, (pair, (queries, gallery, dim)) in enumerate(files.items()):

        def report(done: int, before: int = place * number) -> None:
            if progress is not None:
                progress(before + done, len(files) * number)

        rankings[pair] = first_results(
            plan,
            rows_of(queries, plan.query_ids)[:, :dim].to(device),
            rows_of(gallery, plan.gallery_ids).to(device),
            progress=report,
        )
    return rankings


def first_results(
    plan: SearchPlan,
    query: Float[Tensor, "query dim"],
    gallery: Float[Tensor, "gallery dim"],
    k: int = KS[-1],
    *,
    progress: Callable[[int], None] = lambda done: None,
) -> Ranking:
    """The `k` best gallery items of each query by cosine, or fewer: never all of the gallery.

    Ignored items, such as the query itself, are left out.
    """
    k = min(k, fewest_ranked(plan) - 1)
    if k < 1:
        raise DataError(
            f"A comparison of rankings needs two gallery items or more for each query, but the "
            f"gallery has {len(gallery)}, and some queries may not find all of them. Add items."
        )
    query, gallery = (F.normalize(side.float(), dim=1) for side in (query, gallery))
    places, scores = [], []
    for rows in torch.arange(len(query)).split(rows_per_block(4 * len(gallery), gallery.device)):
        score = query[rows.to(query.device)] @ gallery.T
        if plan.ignored is not None:
            score.masked_fill_(plan.is_ignored(rows).to(score.device), -torch.inf)
        best = best_by_partition(score, k) if score.device.type == "cpu" else best_by_topk(score, k)
        places.append(best.cpu())
        scores.append(score.gather(1, best).cpu())
        progress(int(rows[-1]) + 1)
    return Ranking(torch.cat(places), torch.cat(scores))


def fewest_ranked(plan: SearchPlan) -> int:
    """Smallest number of gallery items that a query may find."""
    hidden = max((len(set(rows)) for rows in plan.ignored or []), default=0)
    return len(plan.gallery_ids) - hidden


def has_supervision(files: Sequence[Vectors], truth: GroundTruth | None) -> bool:
    """Whether labels of a file or a ground truth tell which items are relevant."""
    return truth is not None or any(file.labels is not None for file in files)


def ids_as_text(ids: NDArray[Any]) -> list[str]:
    """Ids as a file of pairs names them."""
    return [str(item) for item in ids.tolist()]
