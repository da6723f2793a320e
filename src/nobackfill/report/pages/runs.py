"""The report of several runs: which method gives what, how sure that is, and what it costs."""

from collections.abc import Mapping, Sequence
from statistics import mean
from typing import Any

import numpy as np

from nobackfill.evaluation.geometry import SimilarityHistogram
from nobackfill.evaluation.verdict import between, directions_of, from_to, listed
from nobackfill.report.charts import pareto_front, self_cross_plane, step_curves
from nobackfill.report.numbers import count, maybe
from nobackfill.report.page import Figure, Page, Section, Table
from nobackfill.report.seeds import Outcome, Spread, check_same_search, comparison_of


def runs_page(
    outcomes: Sequence[Outcome],
    *,
    title: str = "Upgrades compared",
    similarity: SimilarityHistogram | None = None,
    made_of: Mapping[str, str] | None = None,
) -> Page:
    """Compares runs on the same items.

    Args:
        outcomes: One per run.
        title: Title of the page.
        similarity: Of the class means of some of them, where there is an old and a Baseline's.
        made_of: Where the numbers come from.
    """
    check_same_search(outcomes)
    table = comparison_of(outcomes)
    return Page(
        title=title,
        summary=[*conclude(table), *directions_sentence(outcomes)],
        sections=[
            numbers_section(table),
            *plane_section(table),
            *([similarity_section(similarity)] if similarity else []),
            single_section(outcomes),
        ],
        not_measured=_missing(outcomes, table),
        made_of={
            "runs": str(len(outcomes)),
            "queries": f"{outcomes[0].summary['num_queries']:,}",
            "gallery": f"{outcomes[0].summary['num_gallery']:,} items",
            "protocol": outcomes[0].summary["protocol"],
            "searched": outcomes[0].summary["searched"],
            **(made_of or {}),
        },
    )


def conclude(table: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """What to conclude, in a few sentences."""
    compatible = {
        kind: one for kind, one in table.items() if one["verdicts"]["compatible"] == one["seeds"]
    }
    if not compatible:
        return ["No method is compatible on every seed: none may go live without a backfill."]
    best = max(compatible, key=lambda kind: compatible[kind]["new_old"].mean)
    one = compatible[best]
    sentences = [
        f"{count(len(compatible), 'method is', 'methods are')} compatible on every seed, of "
        f"{len(table)}. The highest new/old has {best}: {one['new_old'].text()} of "
        f"{one['old_old'].text()} percent mAP."
    ]
    after = max(
        (kind for kind in compatible if compatible[kind]["new_new"] is not None),
        key=lambda kind: compatible[kind]["new_new"].mean,
        default=None,
    )
    if after is not None and after != best:
        sentences.append(
            f"After a full backfill {after} would be the best of them: "
            f"{compatible[after]['new_new'].text()}."
        )
    if worse := [kind for kind, one in compatible.items() if one["first_answers_worse"]]:
        sentences.append(
            f"The first answers get worse (Recall@1 or nDCG@10) on some seed with {listed(worse)}."
        )
    return sentences


def directions_sentence(outcomes: Sequence[Outcome]) -> list[str]:
    """Of runs of images and texts: which direction is in the tables, and which the verdicts count.

    None for runs of images alone.
    """
    directions = directions_of(outcomes[0].summary)
    if not directions:
        return []
    first, counted = next(iter(directions)), between(directions)
    if len(counted) == 1:
        return [f"All of this is {from_to(first)}; no other between images and texts was asked."]
    names = listed([from_to(name) for name in counted])
    return [f"Numbers are {from_to(first)}; a run is compatible if it is so {names}."]


def numbers_section(table: Mapping[str, Mapping[str, Any]]) -> Section:
    """Every kind of run in a line."""
    has_baseline = any(one["against_baseline"] is not None for one in table.values())
    scores = {
        head: key
        for head, key in (("P_up", "p_up"), ("P_comp", "p_comp"), ("P_1", "p_1"))
        if any(one[key] is not None for one in table.values())
    }
    columns = [
        "method", "compatible", "seeds", "old/old", "new/old", "new/new", "gain today",
        *(["Δ Baseline"] if has_baseline else []),
        "lose first hit", *scores, *(["gain recovered"] if scores else []),
    ]  # fmt: skip
    order = sorted(table, key=lambda kind: -table[kind]["new_old"].mean)
    rows = []
    for kind in order:
        one = table[kind]
        rows.append(
            [
                kind,
                _verdict_text(one),
                str(one["seeds"]),
                *(_text(one[key]) for key in ("old_old", "new_old", "new_new")),
                _text(one["gain"], sign=True),
                *([_text(one["against_baseline"], digits=2, sign=True)] if has_baseline else []),
                _text(one["lost"]),
                *(_text(one[key]) for key in scores.values()),
                *([_text(one["gain_recovered"], digits=0)] if scores else []),
            ]
        )
    return Section(
        "What each method gives",
        "Percent; mean ± half the 95 % interval over seeds. Gain today: new/old less old/old. Δ "
        "Baseline: new/old less that of prototype_alignment on the same seed. P-scores: 50 is "
        "neutral; M(o,o) is old/old, M* the independent model on its own gallery.",
        tables=[Table(columns, rows, frozenset(columns[2:]), strong=_strong(order, table))],
    )


def _text(value: Spread | None, *, digits: int = 1, sign: bool = False) -> str:
    return "–" if value is None else value.text(digits=digits, sign=sign)


def _verdict_text(one: Mapping[str, Any]) -> str:
    """Yes or no where all seeds agree, else how many say what."""
    verdicts = one["verdicts"]
    if verdicts["compatible"] == one["seeds"]:
        return "yes"
    if verdicts["not compatible"] == one["seeds"]:
        return "no"
    return f"{verdicts['compatible']} of {one['seeds']} seeds"


def _strong(order: Sequence[str], table: Mapping[str, Mapping[str, Any]]) -> int | None:
    """The row of the best that is compatible on every seed."""
    sure = (
        place
        for place, kind in enumerate(order)
        if table[kind]["verdicts"]["compatible"] == table[kind]["seeds"]
    )
    return next(sure, None)


def plane_section(table: Mapping[str, Mapping[str, Any]]) -> list[Section]:
    """Self against cross: what is paid for what."""
    points = [
        (kind, 100 * one["new_new"].mean, 100 * one["new_old"].mean)
        for kind, one in table.items()
        if one["new_new"] is not None
    ]
    if len(points) < 2:
        return []
    front = pareto_front([point[1:] for point in points])
    old = 100 * mean(one["old_old"].mean for one in table.values())
    ceilings = [one["independent"].mean for one in table.values() if one["independent"] is not None]
    names = ", ".join(points[place][0] for place in front)
    return [
        Section(
            "Today against later",
            "Above the dotted line an upgrade may go live at once; further right it will be better "
            "once the gallery has been embedded again. On the grey line lie the methods that no "
            "other beats in both.",
            figures=[
                Figure(
                    self_cross_plane(
                        points,
                        front,
                        old=old,
                        independent=100 * mean(ceilings) if ceilings else None,
                    ),
                    "Self and cross",
                    f"No other method beats these in both: {names}. old/old is {old:.1f}.",
                )
            ],
        )
    ]


def similarity_section(found: SimilarityHistogram) -> Section:
    """How similar class means are in each space."""
    columns = ["space", "mean cosine", "pairs below 0"]
    return Section(
        "How similar different classes are",
        f"Cosines between the class means of each model, for the {found.pairs:,} pairs of classes "
        f"that are similar (cosine above 0) in both the old and the Baseline's space.",
        tables=[
            Table(
                columns,
                [
                    [name, f"{found.mean[name]:.3f}", maybe(found.below_zero[name], unit=" %")]
                    for name in found.counts
                ],
                frozenset(columns[1:]),
            )
        ],
        figures=[
            Figure(
                step_curves(
                    {name: np.asarray(part) for name, part in found.counts.items()},
                    np.asarray(found.edges),
                    label="cosine of two class means",
                ),
                "Similarity of class means",
                "; ".join(f"{name}: mean {found.mean[name]:.3f}" for name in found.counts) + ".",
            )
        ],
    )


def single_section(outcomes: Sequence[Outcome]) -> Section:
    """Every run by itself."""
    columns = ["run", "method", "seed", "old/old", "new/old", "new/new", "verdict"]
    return Section(
        "Every run",
        "mAP in percent.",
        tables=[
            Table(
                columns,
                [
                    [
                        one.name,
                        one.kind,
                        str(one.seed),
                        *(maybe(one.summary[key], digits=2) for key in PAIRS_SHOWN),
                        one.summary["verdict"],
                    ]
                    for one in outcomes
                ],
                frozenset(columns[2:-1]),
            )
        ],
    )


PAIRS_SHOWN = ("old_old", "new_old", "new_new")


def _missing(outcomes: Sequence[Outcome], table: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """What a reader may look for in vain."""
    missing = []
    if alone := [kind for kind, one in table.items() if one["seeds"] == 1]:
        missing.append(f"the spread over seeds: a single run of {', '.join(alone)}")
    if without := [one.name for one in outcomes if one.summary["p_1"] is None]:
        runs = count(len(without), "run", "runs")
        missing.append(f"P-scores: no independent model, or no better one, in {runs}")
    notes = {note for one in outcomes for note in one.summary["notes"]}
    return [*missing, *sorted(notes)]
