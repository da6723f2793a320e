"""The verdict of a person who judged the results of old and new queries side by side.

The judged queries are a random sample of those whose first results change, so a gain on them is a
gain on all queries: the others keep their first results.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp, lgamma, log
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray

from nobackfill.core.page import Page, Readable
from nobackfill.data.listing import GroundTruth, Judgement
from nobackfill.errors import DataError
from nobackfill.evaluation.agreement import SHOWN
from nobackfill.evaluation.bootstrap import CONFIDENCE, FEWEST_GROUPS, Interval, paired_interval
from nobackfill.evaluation.evaluate import independent_queries, read_pairs, read_sides
from nobackfill.evaluation.gate import WEIGHED, change_of
from nobackfill.evaluation.identity import identity_doubts
from nobackfill.evaluation.metrics import Retrieval
from nobackfill.evaluation.protocols import protocol_named
from nobackfill.evaluation.rankings import Ranking, ids_as_text, rank_pairs
from nobackfill.evaluation.result import metrics_of
from nobackfill.evaluation.search import PairVectors, search_pairs
from nobackfill.evaluation.search_plan import SearchPlan, plan_upgrade
from nobackfill.evaluation.verdict import Verdict, is_compatible
from nobackfill.vectors.matrix import Data

VALUES = {"before": -1, "equal": 0, "after": 1}  # value of each preference


@dataclass(frozen=True)
class Preference:
    """How often a person preferred the new results.

    Groups of dependent queries, such as near-duplicates, count once. Groups without a preference
    are equal, and not part of the share.
    """

    better: int  # number of groups in which the new results are better
    worse: int  # number of groups in which they are worse
    equal: int  # number of groups in which neither is better

    @property
    def groups(self) -> int:
        """Number of groups."""
        return self.better + self.worse + self.equal

    @property
    def interval(self) -> tuple[float, float]:
        """Exact 95 % interval of the share of groups, among unequal ones, that are better."""
        return share_interval(self.better, self.better + self.worse)

    @property
    def is_enough(self) -> bool:
        """Whether there are enough groups for a verdict."""
        return self.groups >= FEWEST_GROUPS

    def summary(self) -> dict[str, Any]:
        """Returns the numbers for JSON; the share is None if all groups are equal."""
        unequal = self.better + self.worse
        low, high = self.interval if self.is_enough and unequal else (None, None)
        return {
            "better": self.better,
            "worse": self.worse,
            "equal": self.equal,
            "groups": self.groups,
            "share_better": self.better / unequal if unequal else None,
            "low": low,
            "high": high,
            "confidence": CONFIDENCE,
        }


@dataclass(frozen=True, eq=False, repr=False)
class Judged(Readable):
    """An upgrade as a person judged it; `print` shows its numbers.

    Attributes:
        preference: Which results the person prefers.
        changes: Change of each metric over marked results, with its interval; empty without marks.
        results: Rankings of the judged items by pair of models (query/gallery); likewise.
        counts: Numbers of queries: in the file ("in_file"), in these files ("found"), left out
            because their results are not those that were judged ("stale"), "judged" and "marked".
        notes: Notes for the reader.
        doubts: Reasons why the judgements prove nothing.
    """

    preference: Preference
    changes: Mapping[str, Interval]
    results: Mapping[str, Retrieval]
    counts: Mapping[str, int]
    notes: Sequence[str] = ()
    doubts: Sequence[str] = ()

    @property
    def verdict(self) -> Verdict:
        """Whether the upgrade may go live, by `decide`; "undecided" if there is any doubt."""
        return "undecided" if self.doubts else decide(self.preference, self.changes)

    def page(self) -> Page:
        """Returns the page that `print` and `nobackfill evaluate` show."""
        from nobackfill.evaluation.judged_overview import judged_page

        return judged_page(self)

    def __repr__(self) -> str:
        return f"Judged({self.verdict!r}, {self.preference})"

    def summary(self) -> dict[str, Any]:
        """Returns the numbers for JSON."""
        return {
            "verdict": self.verdict,
            "compatible": is_compatible(self.verdict),
            "quality_measured": True,
            "preference": self.preference.summary(),
            "changes": {name: change.summary() for name, change in self.changes.items()},
            "metrics": {name: metrics_of(result) for name, result in self.results.items()},
            "judgements": dict(self.counts),
            "doubts": list(self.doubts),
            "notes": list(self.notes),
        }


def decide(preference: Preference, changes: Mapping[str, Interval]) -> Verdict:
    """Decides from a person's preference and the metrics over marked results.

    The preference decides if its interval lies on one side of a half. A metric that surely moves
    the other way makes the verdict "mixed". Fewer than 8 groups leave it undecided.
    """
    if not preference.is_enough or preference.better + preference.worse == 0:
        return "undecided"
    low, high = preference.interval
    if low > 0.5:
        return "mixed" if any(change.high < 0 for change in changes.values()) else "compatible"
    if high < 0.5:
        return "mixed" if any(change.low > 0 for change in changes.values()) else "not compatible"
    return "undecided"


def judge(
    old: Data,
    new: Data,
    judgements: Any,
    *,
    ids: Any = None,
    query_for_old: Data | None = None,
    protocol: str | None = None,
    intersect: bool = False,
    sessions: str | None = None,
    metrics: Sequence[str] = WEIGHED,
    seed: int = 0,
    device: torch.device | str = "cpu",
) -> Judged:
    """Returns what the judgements of a person say about an upgrade.

    A judgement counts if the first results of its query are still those that the person saw.

    Args:
        old: Vectors of the model in service, as for `evaluate`.
        new: Vectors of the model that may replace it.
        judgements: File of answers that a judging page saved.
        ids: As for `evaluate`, like all that follow.
        query_for_old: New queries, mapped for the old gallery.
        protocol: Name of the protocol.
        intersect: Whether to leave out items that only one file has.
        sessions: Column of the session of each item.
        metrics: Metrics over the items that were shown for a query; other items are unknown.
        seed: Random seed of their intervals.
        device: Device of the search.
    """
    (old, new, query_for_old), assumed = read_sides(
        {"old": old, "new": new, "query_for_old": query_for_old}, columns=(), ids=ids
    )
    truth = read_pairs(judgements, None, labels=None, groups=None)
    if truth is None or not truth.judgements:
        raise DataError(
            "The pairs have no judgements of a person. Save the answers of a judging page "
            "(`nobackfill evaluate --report page.html` on files without labels), or pass other "
            "pairs to `evaluate`."
        )
    _, rules = protocol_named(protocol)
    queries = new if query_for_old is None else query_for_old
    plan = plan_upgrade(
        old, queries, new, rules, intersect=intersect, ground_truth=GroundTruth(truth.relevant)
    )
    whole = plan
    plan = plan.keep(np.isin(ids_as_text(plan.query_ids), list(truth.judgements)))
    number = len(plan.query_ids)
    dim = queries.compatible_dim or queries.dim
    files = {"old_old": (old, old, None), "new_old": (queries, old, dim)}

    # leave out queries that a head has seen, and those whose results are others now
    plan, groups, seen, copies = independent_queries(plan, old, queries, new, sessions, device)
    answers = [truth.judgements[query] for query in ids_as_text(plan.query_ids)]
    rankings = rank_pairs(plan, files, device)
    is_current = np.array(
        [
            is_shown(answer.before, rankings["old_old"], row, plan)
            and is_shown(answer.after, rankings["new_old"], row, plan)
            for row, answer in enumerate(answers)
        ]
    )
    if not is_current.any():
        raise DataError(
            f"None of the {number:,} judged queries has the results that were judged: the "
            f"judgements are on other vectors. Write the page again with these files (--report), "
            f"and judge it."
        )
    doubts = [*filter(None, [seen.doubt]), *identity_doubts(old, queries, whole, device)]
    plan, groups = plan.keep(is_current), groups[is_current]
    answers = [answer for answer, keep in zip(answers, is_current, strict=True) if keep]

    # measure
    values = np.array([VALUES[answer.preferred] for answer in answers], dtype=np.float64)
    results: dict[str, Retrieval] = {}
    if any(plan.relevant or []):
        shown = only_shown(plan, answers)
        results = search_pairs(shown, rules, PairVectors(shown, files, device))
    changes = {
        name: paired_interval(
            change_of(name, results["old_old"], results["new_old"]), groups, seed=seed
        )
        for name in (metrics if results else ())
    }
    counts = {
        "in_file": len(truth.judgements),
        "found": number,
        "stale": int((~is_current).sum()),
        "judged": len(answers),
        "marked": sum(map(bool, plan.relevant or [])),
    }
    preference = preference_of(values, groups)
    notes = [*assumed, *limits(counts, preference), *filter(None, [seen.note]), *copies, *doubts]
    return Judged(preference, changes, results, counts, notes, doubts)


def preference_of(values: Float[np.ndarray, " query"], groups: NDArray[Any]) -> Preference:
    """Counts the groups by the sign of the sum of their preferences, 1 for the new results.

    Example:
        >>> preference_of(np.array([1.0, 1, -1, -1, 0]), np.array([0, 0, 0, 1, 2]))
        Preference(better=1, worse=1, equal=1)
    """
    number = np.unique(groups, return_inverse=True)[1]
    sums = np.bincount(number, weights=values)
    return Preference(int((sums > 0).sum()), int((sums < 0).sum()), int((sums == 0).sum()))


def share_interval(number: int, total: int) -> tuple[float, float]:
    """Returns the exact 95 % interval of a share (Clopper and Pearson, 1934), by bisection.

    Its lower end is above a half if and only if the two-sided sign test finds a difference.

    Example:
        >>> [round(end, 4) for end in share_interval(5, 10)], share_interval(0, 0)
        ([0.1871, 0.8129], (0.0, 1.0))
    """
    tail = (1 - CONFIDENCE) / 2
    low = bisect(lambda share: at_least(number, total, share) < tail) if number else 0.0
    high = (
        bisect(lambda share: at_least(total - number, total, 1 - share) > tail)
        if number < total
        else 1.0
    )
    return low, high


def bisect(is_below: Callable[[float], bool]) -> float:
    """Returns the share up to which a condition holds, between 0 and 1."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if is_below(middle) else (low, middle)
    return low


def at_least(number: int, total: int, share: float) -> float:
    r"""Returns the probability of at least `number` of `total` successes.

    .. math::
        \sum_{k \ge n} \binom{N}{k} p^k (1 - p)^{N - k}
    """
    return sum(
        exp(
            lgamma(total + 1) - lgamma(k + 1) - lgamma(total - k + 1)
            + k * log(share) + (total - k) * log(1 - share)
        )
        for k in range(number, total + 1)
    )  # fmt: skip


def is_shown(shown: Sequence[str], ranking: Ranking, row: int, plan: SearchPlan) -> bool:
    """Whether the first results of a query are those that a person saw, in any order."""
    places = ranking.places[row, : len(shown)].numpy()
    return set(ids_as_text(plan.gallery_ids[places])) == set(shown)


def only_shown(plan: SearchPlan, judgements: Sequence[Judgement]) -> SearchPlan:
    """Returns the search among the items that were shown for any query; others are ignored."""
    shown = [{*judgement.before, *judgement.after} for judgement in judgements]
    names = np.array(ids_as_text(plan.gallery_ids))
    rows = np.flatnonzero(np.isin(names, list(set.union(*shown))))
    place = {int(row): number for number, row in enumerate(rows)}
    hidden = [
        [number for number, name in enumerate(names[rows].tolist()) if name not in items]
        for items in shown
    ]
    relevant = [[place[row] for row in rows] for rows in plan.relevant or []]
    return replace(plan, gallery_ids=plan.gallery_ids[rows], relevant=relevant, ignored=hidden)


def limits(counts: Mapping[str, int], preference: Preference) -> list[str]:
    """Returns notes on what the judgements cannot show."""
    notes = [
        f"{counts['judged']:,} queries were judged by their first {SHOWN} results; items that were "
        f"not shown are unknown, and metrics rank only those that were"
    ]
    if missing := counts["in_file"] - counts["found"]:
        notes.append(f"{missing:,} judged queries are not in these files")
    if counts["stale"]:
        notes.append(
            f"{counts['stale']:,} judged queries have other results by these files and are left out"
        )
    if preference.groups < counts["judged"]:
        notes.append(
            f"these {counts['judged']:,} queries count as {preference.groups:,} independent ones: "
            f"near-duplicates, and queries that share a relevant item, count once"
        )
    if not preference.is_enough:
        notes.append(
            f"no verdict: it needs judgements of at least {FEWEST_GROUPS} independent groups of "
            f"queries, and these are of {preference.groups}"
        )
    return notes
