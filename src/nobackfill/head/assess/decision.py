"""Chooses the cheapest way to serve an upgrade that pays, and explains the choice."""

from collections.abc import Collection, Mapping
from typing import Literal

from nobackfill.core.numbers import listed
from nobackfill.evaluation.bootstrap import in_points
from nobackfill.evaluation.verdict import METRIC_NAMES, as_sentence, changes_sentence
from nobackfill.head.assess.candidates import BOTH, CONTROL, FULL, KEEP, Candidate

Answer = Literal[
    "upgrade with head",
    "both models ask",
    "two-stage",
    "backfill first",
    "full backfill",
    "keep the old model",
    "inconclusive",
]
SHARES = (0.1, 0.25, 0.5)  # shares of the gallery to embed again
KEEP_BELOW = 0.005  # gain in mAP that is not worth an upgrade


def two_stage_name(k: int) -> str:
    """Returns the name of the candidate that ranks the first results again."""
    return f"two-stage, top {k}"


def backfilled_name(share: float) -> str:
    """Returns the name of the candidate that embeds a share of the gallery again."""
    return f"{100 * share:.0f} % backfilled"


def decide(candidates: Mapping[str, Candidate], best: str, k: int) -> tuple[Answer, str]:
    """Returns the answer and its reason.

    Args:
        candidates: Every way that was tried, by name.
        best: Name of the head or map that is best on the validation classes.
        k: Number of items that the second stage ranks again.
    """
    # The cheapest way that pays.
    ways: dict[str, tuple[Answer, str]] = {
        best: (
            "upgrade with head",
            f"queries mapped by the {best} head beat the old model on its own gallery",
        ),
        BOTH: (
            BOTH,
            f"queries that sum their old vector and their new one, mapped by the {best} head, beat "
            f"the old model on its own gallery",
        ),
        two_stage_name(k): (
            "two-stage",
            "stored vectors find the first results, and their new vectors put them in order",
        ),
    }
    for name in map(backfilled_name, SHARES):
        reason = f"with {name} at random, the mixed gallery beats the old one"
        ways[name] = "backfill first", reason
    if is_worse(candidates[FULL]):
        del ways[BOTH]
    for name, (answer, reason) in ways.items():
        if candidates[name].pays:
            gain = in_points(candidates[name].gain.summary())
            reason = f"{reason}, by {gain} points of mAP."
            return answer, reason + better_scoring(candidates, name, k)

    # No cheap way pays.
    full = candidates[FULL]
    if full.pays:
        return FULL, (
            f"only a full backfill surely beats the old model, by "
            f"{in_points(full.gain.summary())} points of mAP; with the stored vectors, {best} "
            f"gains {in_points(candidates[best].gain.summary())}."
        ) + better_scoring(candidates, FULL, k)
    answer, reason = without_upgrade(candidates[best])
    return answer, reason + better_scoring(candidates, KEEP, k, explained={best})


def without_upgrade(head: Candidate) -> tuple[Answer, str]:
    """Returns the answer and its reason if no way pays, from the best head or map."""
    gain = in_points(head.gain.summary())
    others = changes_sentence({name: change.summary() for name, change in head.changes.items()})
    if head.gain.high < 0:
        return KEEP, (
            f"even the best way to search the stored vectors, {head.name}, loses: {gain} points of "
            f"mAP."
        )
    if head.gain.high < KEEP_BELOW:
        return KEEP, (
            f"the best way to search the stored vectors, {head.name}, gains {gain} points of mAP: "
            f"less than half a point at most."
        )
    if head.gain.low > 0 and not head.added.low > 0:
        return KEEP, (
            f"{head.name} gains {gain} points of mAP, but so does a head on the old model's own "
            f"vectors (difference: {in_points(head.added.summary())}): the gain comes from the "
            f"labels, not from the new model."
        )
    if head.verdict == "mixed":
        return "inconclusive", (
            f"{head.name} gains {gain} points of mAP, but the metrics disagree. {others}"
        )
    if head.verdict == "not compatible":
        return KEEP, f"{head.name} gains {gain} points of mAP, which may be chance. {others}"
    return "inconclusive", (
        f"{head.name} gains {gain} points of mAP, which may be chance: add queries of more classes."
    )


def is_worse(full: Candidate) -> bool:
    """Whether the new model surely loses on its own gallery, so that no upgrade is worth making.

    Queries of both models may still gain, as those of any two models do.
    """
    return full.gain.high < 0


def better_scoring(
    candidates: Mapping[str, Candidate], served: str, k: int, explained: Collection[str] = ()
) -> str:
    """Returns a sentence, after a space, on why the way with the highest mAP is not preferred.

    Empty if no other way is above the one that is served. Explained ways do not count.
    """
    explained = (served, *explained, *([BOTH] if is_worse(candidates[FULL]) else []))
    others = [way for name, way in candidates.items() if name not in explained]
    top = max(others, key=lambda way: way.test)
    if round(100 * top.test, 1) <= round(100 * candidates[served].test, 1):
        return ""
    return " " + as_sentence(
        f"{top.name} would reach {100 * top.test:.1f} % mAP, {drawback(top, k)}"
    )


def drawback(way: Candidate, k: int) -> str:
    """Why a way with a higher mAP is not preferred, as a clause."""
    costs = {
        BOTH: "needs both models for each query",
        FULL: "costs embedding the whole gallery again",
        two_stage_name(k): f"needs the new vectors of the first {k} results of each query",
        **{
            backfilled_name(share): f"costs embedding {100 * share:.0f} % of the gallery again"
            for share in SHARES
        },
    }
    if way.name == CONTROL:
        return "without the new model"
    if falls := [METRIC_NAMES[name] for name, change in way.changes.items() if change.high < 0]:
        return f"but {listed(falls)} would fall"
    if not way.gain.low > 0:
        return "but its gain may be chance"
    if way.name != FULL and not way.added.low > 0:
        return "but a head on the old vectors may gain as much"
    return f"but {costs.get(way.name, 'the choice was made on the validation classes')}"
