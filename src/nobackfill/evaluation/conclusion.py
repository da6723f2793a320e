"""Conclusions from an upgrade, in a few sentences: the verdict, and what it hides."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from nobackfill.core.numbers import count, listed, percent
from nobackfill.evaluation.bootstrap import in_points
from nobackfill.evaluation.verdict import (
    Verdict,
    again_gains,
    between,
    changes_sentence,
    from_to,
    joint_verdict,
    verdict_sentence,
    what_falls,
)

if TYPE_CHECKING:
    from nobackfill.evaluation.findings import Findings
    from nobackfill.evaluation.result import Evaluation

HEADLINE = 10  # queries that a class must have to be named here
CHANGE = "new_old - old_old"


def verdict_of(evaluation: "Evaluation", directions: Mapping[str, Mapping[str, Any]]) -> Verdict:
    """Returns the joint verdict of the directions that count, or that of a search without any."""
    if counted := between(directions):
        return joint_verdict(result["verdict"] for result in counted.values())
    return evaluation.verdict


def conclude(
    findings: "Findings", directions: Mapping[str, Mapping[str, Any]] | None = None
) -> list[str]:
    """Returns sentences on what to do and what to expect.

    Args:
        findings: Result of `findings_of`.
        directions: Summaries by direction, as in `upgrade_page`.
    """
    evaluation, summary = findings.evaluation, findings.evaluation.summary()
    directions = directions or {}
    where = "" if evaluation.modalities is None else from_to("_to_".join(evaluation.modalities))
    sentences = [
        first_sentence(evaluation, directions),
        flips_sentence(summary, where=where),
        *falling(between(directions) or {"": summary}),
        *worse_within(directions),
        *recovered_sentence(summary),
    ]
    large = (part for part in findings.slices.get("label", ()) if part.queries >= HEADLINE)
    worst = next(large, None)
    if worst is not None and worst.difference.mean < 0:
        sentences.append(
            f"It hurts most in class {worst.value}: {100 * worst.difference.mean:+.1f} points over "
            f"{count(worst.queries, 'query', 'queries')}."
        )
    return sentences


def first_sentence(
    evaluation: "Evaluation", directions: Mapping[str, Mapping[str, Any]] | None = None
) -> str:
    """Returns the gain in each direction that counts, and what to do."""
    directions = directions or {}
    counted = between(directions)
    summary = evaluation.summary()
    change = summary["differences"][CHANGE]
    where = doubts = ""
    if evaluation.modalities is not None:
        own = "_to_".join(evaluation.modalities)
        gains = [
            f"{in_points(result['differences'][CHANGE])} {from_to(name)}"
            for name, result in counted.items()
            if name != own
        ]
        undecided = [name for name, result in counted.items() if result["verdict"] == "undecided"]
        where = listed([from_to(own), *gains])
        if not gains:
            among = "between modalities " if directions else ""
            where += f", the only direction {among}that was asked"
        elif undecided:
            doubts = listed([from_to(name) for name in undecided])
    verdict = verdict_of(evaluation, directions)
    # other metrics explain what mAP does not
    falls = change["high"] is not None and change["high"] < 0
    is_explained = verdict == "not compatible" and falls
    others = "" if is_explained or directions else changes_sentence(summary["changes"])
    return verdict_sentence(
        verdict,
        in_points(change),
        gains_again=again_gains(counted.values() or [summary]),
        where=where,
        doubts=doubts,
        unchanged=change["low"] == change["high"] == 0,
        reasons=evaluation.doubts,
        others=others,
    )


def flips_sentence(summary: Mapping[str, Any], *, where: str = "") -> str:
    """Returns the shares of queries that lose and gain their first hit."""
    flips = summary["flips"][0]
    return (
        f"{percent(flips['negative'])} of the queries lose their first hit"
        f"{where and ' ' + where}, {percent(flips['positive'])} gain one."
    )


def recovered_sentence(summary: Mapping[str, Any]) -> list[str]:
    """Returns the share of the possible gain that needs no backfill; empty if it is unknown."""
    if (share := summary["gain_recovered"]) is None:
        return []
    return [
        f"This recovers {percent(share, digits=0)} of the gain of embedding everything again with "
        f"a model trained without constraint."
    ]


def scores_sentence(summary: Mapping[str, Any]) -> list[str]:
    """Returns the P-scores and the values that they are computed from; empty without P-scores."""
    if summary["p_1"] is None:
        return []
    means = summary["p_scores_of"]
    return [
        f"P_up {summary['p_up']:.2f}, P_comp {summary['p_comp']:.2f}, P_1 {summary['p_1']:.2f} "
        f"(50 is neutral); M(o,o) is old/old, {100 * means['old_old']:.2f}, and M* the independent "
        f"model, {100 * means['independent']:.2f}."
    ]


def falling(directions: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Returns a sentence for each direction with worse first answers; "" names the only one."""
    sentences = [
        what_falls(result, where=name and from_to(name)) for name, result in directions.items()
    ]
    return [sentence for sentence in sentences if sentence]


def worse_within(directions: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Returns a sentence on searches within one modality that lose; the verdict ignores them."""
    losses = [
        f"{from_to(name)} {in_points(result['differences'][CHANGE])}"
        for name, result in directions.items()
        if name not in between(directions) and result["verdict"] == "not compatible"
    ]
    if not losses:
        return []
    return [
        f"The verdict does not count searches within one modality, where new queries do worse: "
        f"{listed(losses)} points of mAP."
    ]
