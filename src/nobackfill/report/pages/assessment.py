"""The report of an assessment: is the upgrade worth making, and how?"""

from nobackfill.evaluation.bootstrap import in_points
from nobackfill.head.assess.assess import Verdict
from nobackfill.report.charts import intervals
from nobackfill.report.numbers import interval_in_points
from nobackfill.report.page import Figure, Page, Section, Table


def assessment_page(verdict: Verdict, *, title: str) -> Page:
    """The candidates of an assessment, and the verdict."""
    return Page(
        title=title,
        summary=[verdict.reason[0].upper() + verdict.reason[1:]],
        verdict=verdict.verdict,
        sections=[ways_section(verdict), room_section(verdict)],
        not_measured=[
            "live traffic: the queries are labelled items that search for each other",
            "an approximate index: all searches here are exact",
            "another order of backfill than a random one",
        ],
        notes=verdict.notes,
        made_of={key.replace("_", " "): f"{value:,}" for key, value in verdict.counts.items()},
    )


def ways_section(verdict: Verdict) -> Section:
    """Every way that was tried, the chosen one in bold."""
    counts, candidates = verdict.counts, verdict.candidates
    columns = ["way", "mAP", "validation", "gain (95 %)", "new model adds", "95 % interval"]
    rows = []
    for candidate in candidates:
        added, _, interval = in_points(candidate.added.summary()).partition(" ")
        rows.append(
            [
                candidate.name + " *" * (candidate.name == verdict.chosen),
                f"{100 * candidate.test:.2f}",
                f"{100 * candidate.validation:.2f}",
                in_points(candidate.gain.summary()) if candidate.gain.mean else "",
                *((added, interval.strip("()")) if candidate.uses_new else ("", "")),
            ]
        )
    gains = {candidate.name: candidate.gain.summary() for candidate in candidates[1:]}
    drawn = {name: interval_in_points(gain) for name, gain in gains.items()}
    return Section(
        "Every way that was tried",
        f"mAP in percent on {counts['test_queries']:,} queries of {counts['test_classes']:,} test "
        f"classes. Heads and maps were fitted on {counts['fitted_classes']:,} other classes; * was "
        f"chosen on {counts['validation_classes']:,} more, and tested once. “new model adds” is "
        f"the gain beyond a head on the old vectors alone.",
        tables=[
            Table(
                columns,
                rows,
                frozenset(columns[1:]),
                [candidate.name for candidate in candidates].index(verdict.chosen),
                details=frozenset({"validation", "95 % interval"}),
            )
        ],
        figures=[
            Figure(
                lambda: intervals(drawn, label="gain in points of mAP; bars are 95 % intervals"),
                "Against keeping the old model",
                "; ".join(f"{name}: {in_points(gain)}" for name, gain in gains.items()) + ".",
            )
        ],
    )


def room_section(verdict: Verdict) -> Section:
    """The highest mAP that queries could reach, and the crowding of the old space."""
    return Section(
        "How much room there is",
        f"If each query were the mean of the stored vectors that it searches for, mAP would be "
        f"{100 * verdict.headroom:.1f} percent: about the best that any query could reach. The "
        f"mean cosine to the nearest other class is {verdict.crowding.nearest:.3f}. There are "
        f"{verdict.advice}.",
    )
