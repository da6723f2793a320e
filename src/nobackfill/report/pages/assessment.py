"""The report of an assessment: is the upgrade worth making, and how?"""

from collections.abc import Sequence

from nobackfill.evaluation.bootstrap import in_points
from nobackfill.head.assess.assess import Candidate, Verdict
from nobackfill.report.charts import intervals
from nobackfill.report.page import Figure, Page, Section, Table


def assessment_page(verdict: Verdict, *, title: str) -> Page:
    """Writes down what was tried and what to do."""
    return Page(
        title=title,
        summary=[verdict.reason[0].upper() + verdict.reason[1:]],
        verdict=verdict.verdict,
        sections=[ways_section(verdict), room_section(verdict)],
        not_measured=[
            "live traffic: these are labelled items that ask for each other",
            "an approximate index: all searches here are exact",
            "another order of backfill than a random one",
            *verdict.notes,
        ],
        made_of={key.replace("_", " "): f"{value:,}" for key, value in verdict.counts.items()},
    )


def ways_section(verdict: Verdict) -> Section:
    """Every way that was tried, the chosen one in bold."""
    counts = verdict.counts
    return Section(
        "Every way that was tried",
        f"mAP in percent on {counts['test_queries']:,} queries of "
        f"{counts['test_classes']:,} test classes. Heads and maps were fitted on "
        f"{counts['fitted_classes']:,} other classes; the one in bold was chosen on "
        f"{counts['validation_classes']:,} more, and tested once. “new model adds” is what "
        f"is gained beyond a head on the old vectors alone.",
        tables=[_ways_table(verdict)],
        figures=[_gains_figure(verdict.candidates[1:])],
    )


def _ways_table(verdict: Verdict) -> Table:
    """A row for each way."""
    columns = ["way", "mAP", "validation", "gain (95 %)", "new model adds (95 %)"]
    rows = [
        [
            one.name,
            f"{100 * one.test:.2f}",
            f"{100 * one.validation:.2f}",
            in_points(one.gain.summary()),
            in_points(one.added.summary()) if one.uses_new else "",
        ]
        for one in verdict.candidates
    ]
    names = [one.name for one in verdict.candidates]
    return Table(columns, rows, frozenset(columns[1:]), names.index(verdict.chosen))


def _gains_figure(candidates: Sequence[Candidate]) -> Figure:
    """What each way gains against the old model, with its interval."""
    drawn = {
        one.name: (100 * one.gain.mean, 100 * one.gain.low, 100 * one.gain.high)
        for one in candidates
    }
    said = "; ".join(f"{one.name}: {in_points(one.gain.summary())}" for one in candidates)
    return Figure(
        intervals(drawn, label="gain in points of mAP; bars are 95 % intervals"),
        "Against keeping the old model",
        f"{said}.",
    )


def room_section(verdict: Verdict) -> Section:
    """What the best of queries could find, and how crowded the old space is."""
    return Section(
        "How much room there is",
        f"If each query were the mean of the stored vectors that it looks for, it would "
        f"find {100 * verdict.headroom:.1f} percent mAP: about what the best of queries "
        f"could. The nearest other class lies at a cosine of {verdict.crowding.nearest:.3f} on "
        f"average. There are {verdict.advice}.",
    )
