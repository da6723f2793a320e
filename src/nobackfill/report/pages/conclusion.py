"""What to conclude of an upgrade, in a few sentences: the verdict, and what it hides."""

from collections.abc import Mapping
from typing import Any

from nobackfill.evaluation.bootstrap import in_points
from nobackfill.evaluation.findings import Findings
from nobackfill.evaluation.verdict import (
    Verdict,
    between,
    from_to,
    joint_verdict,
    listed,
    verdict_sentence,
    what_falls,
)
from nobackfill.report.numbers import count, percent

HEADLINE = 10  # queries that a class must have to be named here


def verdict_of(findings: Findings, directions: Mapping[str, Mapping[str, Any]]) -> Verdict:
    """That of all directions that count; of a single search its own."""
    if counted := between(directions):
        return joint_verdict(one["verdict"] for one in counted.values())
    return findings.evaluation.verdict


def conclude(
    findings: Findings, directions: Mapping[str, Mapping[str, Any]] | None = None
) -> list[str]:
    """What to do, in a few sentences.

    Args:
        findings: As `findings_of` returns them.
        directions: As `upgrade_page` takes them.
    """
    evaluation, summary = findings.evaluation, findings.evaluation.summary()
    directions = directions or {}
    flips, where = summary["flips"][0], ""
    if evaluation.modalities is not None:
        where = from_to("_to_".join(evaluation.modalities))
    sentences = [
        first_sentence(findings, directions),
        f"{percent(flips['negative'])} of the queries lose their first hit"
        f"{where and ' ' + where}, {percent(flips['positive'])} win one.",
        *falling(between(directions) or {"": summary}),
        *worse_within(directions),
    ]
    if summary["gain_recovered"] is not None:
        share = summary["gain_recovered"]
        sentences.append(
            f"Of what a new model without constraint and a full backfill could gain, "
            f"{percent(share, digits=0)} comes today."
        )
    named = (one for one in findings.slices.get("label", ()) if one.queries >= HEADLINE)
    worst = next(named, None)
    if worst is not None and worst.difference.mean < 0:
        sentences.append(
            f"It hurts most in class {worst.value}: {100 * worst.difference.mean:+.1f} points over "
            f"{count(worst.queries, 'query', 'queries')}."
        )
    return sentences


def first_sentence(findings: Findings, directions: Mapping[str, Mapping[str, Any]]) -> str:
    """What the day of the upgrade brings in each direction that counts, and what to do."""
    evaluation, counted = findings.evaluation, between(directions)
    own = in_points(evaluation.differences["new_old - old_old"].summary())
    where = doubts = ""
    if evaluation.modalities is not None:
        asked = "_to_".join(evaluation.modalities)
        gains = [
            f"{in_points(one['differences']['new_old - old_old'])} {from_to(name)}"
            for name, one in counted.items()
            if name != asked
        ]
        where = listed([from_to(asked), *gains])
        if not gains:
            among = "between modalities " if directions else ""
            where += f", the only direction {among}that was asked"
        elif undecided := [name for name, one in counted.items() if one["verdict"] == "undecided"]:
            doubts = listed([from_to(name) for name in undecided])
    return verdict_sentence(verdict_of(findings, directions), own, where=where, doubts=doubts)


def falling(directions: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Where the first answers get worse, a sentence for each direction; the empty name is all."""
    told = [what_falls(one, where=name and from_to(name)) for name, one in directions.items()]
    return [sentence for sentence in told if sentence]


def worse_within(directions: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Searches within one modality that lose: the verdict does not count them."""
    losses = [
        f"{from_to(name)} {in_points(one['differences']['new_old - old_old'])}"
        for name, one in directions.items()
        if name not in between(directions) and one["verdict"] == "not compatible"
    ]
    if not losses:
        return []
    return [
        f"The verdict does not count searches within one modality, where new queries do worse: "
        f"{listed(losses)} points of mAP."
    ]
