"""The report of several runs: the methods compared, over seeds."""

from collections.abc import Mapping, Sequence
from statistics import mean
from typing import Any

from nobackfill.core.numbers import count, listed, maybe
from nobackfill.core.page import Figure, Page, Section, Table
from nobackfill.evaluation.verdict import between, directions_of, from_to
from nobackfill.report.charts import pareto_front, self_cross_plane
from nobackfill.report.class_spaces import ClassSpaces
from nobackfill.report.pages.expected import expected_of, expected_section
from nobackfill.report.pages.spaces import spaces_section
from nobackfill.report.seeds import Outcome, Spread, check_same_search, comparison_of


def runs_page(
    outcomes: Sequence[Outcome],
    *,
    title: str = "Upgrades compared",
    spaces: ClassSpaces | None = None,
    missing: str = "",
    alone: Mapping[str, Mapping[str, Any]] | None = None,
) -> Page:
    """Compares runs on the same items.

    Args:
        outcomes: Result of each run.
        title: Title of the page.
        spaces: Class means of some of the methods.
        missing: Measurements that are missing; empty if there are none.
        alone: Comparison of models without an old one with their recipes' numbers, by name.
    """
    check_same_search(outcomes)
    table = comparison_of(outcomes)
    return Page(
        title=title,
        summary=[*conclude(table), *directions_sentence(outcomes)],
        sections=[
            numbers_section(table),
            *expected_section(expected_of(outcomes, alone or {})),
            *plane_section(table),
            *(spaces_section(spaces) if spaces else []),
            single_section(outcomes),
        ],
        not_measured=[*_missing(outcomes, table), *([missing] if missing else [])],
        made_of={
            "runs": str(len(outcomes)),
            "queries": f"{outcomes[0].summary['num_queries']:,}",
            "gallery": f"{outcomes[0].summary['num_gallery']:,} items",
            "protocol": outcomes[0].summary["protocol"],
            "searched": outcomes[0].summary["searched"],
        },
    )


def conclude(table: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The best methods, today and after a backfill, and those whose first answers get worse."""
    compatible = {kind: table[kind] for kind in table if _is_sure(table[kind])}
    if not compatible:
        return ["No method is compatible on every seed: none may go live without a backfill."]
    best = max(compatible, key=lambda kind: compatible[kind]["new_old"].mean)
    sentences = [
        f"{count(len(compatible), 'method is', 'methods are')} compatible on every seed, of "
        f"{len(table)}. `{best}` has the highest new/old mAP: {compatible[best]['new_old'].text()} "
        f"(old/old: {compatible[best]['old_old'].text()})."
    ]
    complete = {kind: numbers["new_new"] for kind, numbers in compatible.items()}
    after = max(
        (kind for kind, spread in complete.items() if spread is not None),
        key=lambda kind: complete[kind].mean,
        default=best,
    )
    if after != best:
        sentences.append(
            f"After a full backfill `{after}` would be the best of them: {complete[after].text()}."
        )
    if worse := [kind for kind, numbers in compatible.items() if numbers["first_answers_worse"]]:
        sentences.append(
            f"The first answers get worse (Recall@1 or nDCG@10) on some seed with {listed(worse)}."
        )
    return sentences


def directions_sentence(outcomes: Sequence[Outcome]) -> list[str]:
    """The direction in the tables, and those that the verdicts count; empty for images alone."""
    directions = directions_of(outcomes[0].summary)
    if not directions:
        return []
    first, counted = next(iter(directions)), between(directions)
    if len(counted) == 1:
        return [f"All numbers are {from_to(first)}, the only direction between modalities."]
    names = listed([from_to(name) for name in counted])
    return [f"Numbers are {from_to(first)}; a run is compatible if it is so {names}."]


def numbers_section(table: Mapping[str, Mapping[str, Any]]) -> Section:
    """A row for each kind of run, the best first."""
    has_baseline = any(numbers["against_baseline"] is not None for numbers in table.values())
    scores = {
        head: key
        for head, key in (("P_up", "p_up"), ("P_comp", "p_comp"), ("P_1", "p_1"))
        if any(numbers[key] is not None for numbers in table.values())
    }
    columns = [
        "method", "compatible", "seeds", "old/old", "new/old", "new/new", "gain today",
        *(["Δ Baseline"] if has_baseline else []),
        "lose first hit", *scores, *(["gain recovered"] if scores else []),
    ]  # fmt: skip
    order = sorted(table, key=lambda kind: -table[kind]["new_old"].mean)
    rows = []
    for kind in order:
        numbers = table[kind]
        rows.append(
            [
                kind,
                _verdict_text(numbers),
                str(numbers["seeds"]),
                *(_text(numbers[key]) for key in ("old_old", "new_old", "new_new")),
                _text(numbers["gain"], sign=True),
                *([_text(numbers["against_baseline"], digits=2, sign=True)] * has_baseline),
                _text(numbers["lost"]),
                *(_text(numbers[key]) for key in scores.values()),
                *([_text(numbers["gain_recovered"], digits=0)] if scores else []),
            ]
        )
    text = "Percent; mean ± half the 95 % interval over seeds. Gain today: new/old − old/old."
    if has_baseline:
        text += " Δ Baseline: new/old less that of prototype_alignment on the same seed."
    if scores:
        text += (
            " P-scores: 50 is neutral; M(o,o) is old/old, M* the independent model on its own "
            "gallery."
        )
    best = next((place for place, kind in enumerate(order) if _is_sure(table[kind])), None)
    details = {"seeds", "gain today", "Δ Baseline", "lose first hit", "gain recovered"}
    return Section(
        "What each method gives",
        text,
        tables=[Table(columns, rows, frozenset(columns[2:]), best, details=frozenset(details))],
    )


def _text(value: Spread | None, *, digits: int = 1, sign: bool = False) -> str:
    """A mean over seeds; a dash if it was not measured."""
    return "–" if value is None else value.text(digits=digits, sign=sign)


def _is_sure(numbers: Mapping[str, Any]) -> bool:
    """Whether a kind of run is compatible on every seed."""
    return bool(numbers["verdicts"]["compatible"] == numbers["seeds"])


def _verdict_text(numbers: Mapping[str, Any]) -> str:
    """Yes or no if all seeds agree, else the number of compatible ones."""
    verdicts, seeds = numbers["verdicts"], numbers["seeds"]
    if verdicts["not compatible"] == seeds:
        return "no"
    return "yes" if _is_sure(numbers) else f"{verdicts['compatible']} of {seeds} seeds"


def plane_section(table: Mapping[str, Mapping[str, Any]]) -> list[Section]:
    """The gain today against the gain after a backfill; no section for a single method."""
    points = [
        (kind, 100 * numbers["new_new"].mean, 100 * numbers["new_old"].mean)
        for kind, numbers in table.items()
        if numbers["new_new"] is not None
    ]
    if len(points) < 2:
        return []
    front = pareto_front([point[1:] for point in points])
    old = 100 * mean(numbers["old_old"].mean for numbers in table.values())
    ceilings = [n["independent"].mean for n in table.values() if n["independent"] is not None]
    ceiling = 100 * mean(ceilings) if ceilings else None
    names = ", ".join(points[place][0] for place in front)
    return [
        Section(
            "Today against later",
            "An upgrade above the dotted line may go live at once; further right it will be better "
            "once the gallery has been embedded again. The grey line connects the methods that no "
            "other beats in both.",
            figures=[
                Figure(
                    lambda: self_cross_plane(points, front, old=old, independent=ceiling),
                    "Self and cross",
                    f"No other method beats these in both: {names}. old/old is {old:.1f}.",
                )
            ],
        )
    ]


def single_section(outcomes: Sequence[Outcome]) -> Section:
    """A row for each run."""
    columns = ["run", "method", "seed", "old/old", "new/old", "new/new", "verdict"]
    rows = [
        [
            run.name,
            run.kind,
            str(run.seed),
            *(maybe(run.summary[key], digits=2) for key in ("old_old", "new_old", "new_new")),
            run.summary["verdict"],
        ]
        for run in outcomes
    ]
    return Section(
        "Every run", "mAP in percent.", tables=[Table(columns, rows, frozenset(columns[2:-1]))]
    )


def _missing(outcomes: Sequence[Outcome], table: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Missing measurements, and the notes of all runs."""
    missing = []
    if alone := [kind for kind, numbers in table.items() if numbers["seeds"] == 1]:
        missing.append(f"the spread over seeds: a single run of {', '.join(alone)}")
    if without := [run.name for run in outcomes if run.summary["p_1"] is None]:
        runs = count(len(without), "run", "runs")
        missing.append(f"P-scores: no independent model, or no better one, in {runs}")
    notes = {note for run in outcomes for note in run.summary["notes"]}
    return [*missing, *sorted(notes)]
