"""What `print` and `nobackfill assess` show of an assessment."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from nobackfill.core.numbers import percent
from nobackfill.core.page import Figure, Page, Section, Table
from nobackfill.evaluation.bootstrap import in_points
from nobackfill.evaluation.gate import WEIGHED
from nobackfill.evaluation.verdict import METRIC_NAMES
from nobackfill.head.assess.candidates import Candidate

if TYPE_CHECKING:
    from nobackfill.head.assess.assess import Verdict

TITLE = "Is the upgrade worth making?"


def assessment_page(
    verdict: "Verdict", *, title: str = TITLE, figures: Sequence[Figure] = ()
) -> Page:
    """Makes the page: the verdict, and the candidates of an assessment."""
    return Page(
        title=title,
        summary=[verdict.reason[0].upper() + verdict.reason[1:]],
        verdict=verdict.verdict,
        sections=[ways_section(verdict, figures), changes_section(verdict), room_section(verdict)],
        not_measured=[
            "live traffic: the queries are labelled items that search for each other",
            "an approximate index: all searches here are exact",
            "another order of backfill than a random one",
        ],
        notes=verdict.notes,
        made_of={key.replace("_", " "): f"{value:,}" for key, value in verdict.counts.items()},
    )


def ways_section(verdict: "Verdict", figures: Sequence[Figure] = ()) -> Section:
    """Returns the metrics and changes of every way that was tried, the chosen one in bold."""
    counts, candidates = verdict.counts, verdict.candidates
    chosen, names = names_of(verdict)
    table = metrics_table(candidates, names, chosen)
    return Section(
        "Every way that was tried",
        f"In percent, on {counts['test_queries']:,} queries of {counts['test_classes']:,} test "
        f"classes; lose, gain: queries that lose or gain their first hit against keeping the old "
        f"model. Heads and maps were fitted on {counts['fitted_classes']:,} other classes; * was "
        f"chosen on {counts['validation_classes']:,} more, and tested once. A way pays if mAP "
        f"surely rises, also beyond a head on the old vectors alone, and neither "
        f"{METRIC_NAMES[WEIGHED[1]]} nor {METRIC_NAMES[WEIGHED[2]]} surely falls.",
        tables=[table],
        brief=f"{counts['test_queries']:,} queries of {counts['test_classes']:,} classes; lose, "
        f"gain: first hits; * was chosen on other classes. --report and --json have intervals"
        + (f" and {len(table.further)} more ways." if table.further else "."),
        figures=figures,
    )


def names_of(verdict: "Verdict") -> tuple[int, list[str]]:
    """Returns the place of the chosen way, and the names of all, with a star at the chosen."""
    names = [candidate.name for candidate in verdict.candidates]
    chosen = names.index(verdict.chosen)
    names[chosen] += " *"
    return chosen, names


def changes_section(verdict: "Verdict") -> Section:
    """Returns the changes of every way against the old model, with intervals."""
    chosen, names = names_of(verdict)
    return Section(
        "Change against keeping the old model",
        "In points; gain: of mAP. “new model adds” is the gain beyond a head on the old vectors "
        "alone.",
        [changes_table(verdict.candidates[1:], names[1:], chosen - 1)],
        in_terminal=False,
    )


def further_ridges(candidates: Sequence[Candidate]) -> frozenset[int]:
    """Places of all ridge regressions but the best on validation classes."""
    ridges = [place for place, way in enumerate(candidates) if way.name.startswith("ridge ")]
    best = max(ridges, key=lambda place: candidates[place].validation, default=None)
    return frozenset(ridges) - {best}


def metrics_table(candidates: Sequence[Candidate], names: Sequence[str], chosen: int) -> Table:
    """Metrics of each way, the queries that it flips, and whether it pays."""
    columns = ["way", *(METRIC_NAMES[key] for key in WEIGHED), "lose", "gain", "pays", "validation"]
    rows = []
    for name, candidate in zip(names, candidates, strict=True):
        flips = [percent(flip.mean) for flip in (candidate.lost, candidate.gained)]
        answer = "yes" if candidate.pays else "no"
        rows.append(
            [
                name,
                *(f"{100 * candidate.metrics[key]:.2f}" for key in WEIGHED),
                *(["", "", ""] if candidate is candidates[0] else [*flips, answer]),
                f"{100 * candidate.validation:.2f}",
            ]
        )
    return Table(
        columns,
        rows,
        frozenset(columns[1:]) - {"pays"},
        chosen,
        details=frozenset({"validation"}),
        further=further_ridges(candidates),
    )


def changes_table(candidates: Sequence[Candidate], names: Sequence[str], chosen: int) -> Table:
    """Returns the change of each metric against the old model, and what the new model adds."""
    others = [f"{METRIC_NAMES[key]} (95 %)" for key in WEIGHED[1:]]
    columns = ["way", "gain (95 %)", "new model adds", "95 % interval", *others]
    rows = []
    for name, candidate in zip(names, candidates, strict=True):
        added, _, interval = in_points(candidate.added.summary()).partition(" ")
        rows.append(
            [
                name,
                in_points(candidate.gain.summary()),
                *((added, interval.strip("()")) if candidate.uses_new else ("", "")),
                *(in_points(candidate.changes[key].summary()) for key in WEIGHED[1:]),
            ]
        )
    return Table(
        columns,
        rows,
        frozenset(columns[1:]),
        chosen,
        details=frozenset({"95 % interval", *others}),
    )


def room_section(verdict: "Verdict") -> Section:
    """Returns the highest mAP that queries could reach, and the crowding of the old space."""
    return Section(
        "How much room there is",
        f"If each query were the mean of the stored vectors that it searches for, mAP would be "
        f"{100 * verdict.headroom:.1f} percent: about the best that any query could reach. The "
        f"mean cosine to the nearest other class is {verdict.crowding.nearest:.3f}. There are "
        f"{verdict.advice}.",
        in_terminal=False,
    )
