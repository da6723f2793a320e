"""The report of one upgrade: may the new model go live today, and where would it hurt?"""

from collections.abc import Mapping
from math import isnan
from typing import Any

from nobackfill.core.numbers import interval_in_points, maybe, out_of, percent
from nobackfill.core.page import Figure, Page, Section, Table
from nobackfill.evaluation.bootstrap import in_points
from nobackfill.evaluation.conclusion import CHANGE, conclude, scores_sentence, verdict_of
from nobackfill.evaluation.findings import Findings
from nobackfill.evaluation.overview import differences, metrics_table, pair_name
from nobackfill.evaluation.verdict import from_to
from nobackfill.report.charts import intervals, score_curves
from nobackfill.report.maps import LAYOUTS, queries_on_gallery
from nobackfill.report.pages.evaluation import slice_section
from nobackfill.report.pages.queries import queries_section
from nobackfill.report.thumbnails import Show, show_ids


def upgrade_page(
    findings: Findings,
    *,
    title: str = "May the new model go live on the stored vectors?",
    show: Show = show_ids,
    tests: Mapping[str, Mapping[str, Any]] | None = None,
    directions: Mapping[str, Mapping[str, Any]] | None = None,
    made_of: Mapping[str, str] | None = None,
) -> Page:
    """All measurements of an upgrade, with a conclusion.

    Args:
        findings: Result of `findings_of`.
        title: Title of the page.
        show: Function that makes pictures or texts of items.
        tests: Summaries of other tests of the same models, by name.
        directions: Summaries of all measured directions between images and texts, including that
            of the findings. The verdict covers those that `between` counts.
        made_of: Sources of the numbers.
    """
    evaluation, summary = findings.evaluation, findings.evaluation.summary()
    directions = directions or {}
    sections = [
        numbers_section(findings),
        *([tests_section(tests)] if tests else []),
        queries_section(findings, show),
        *slice_sections(findings),
        *confused_section(findings),
        *scores_section(findings),
        *spaces_section(findings),
    ]
    return Page(
        title=title,
        summary=conclude(findings, directions),
        verdict=verdict_of(evaluation, directions),
        sections=sections,
        not_measured=findings.not_measured,
        notes=evaluation.notes,
        made_of={
            "queries": out_of(summary["num_queries"], summary["num_asked"]),
            "gallery": f"{evaluation.num_gallery:,} items",
            "protocol": evaluation.protocol,
            "searched": summary["searched"],
            **(made_of or {}),
        },
    )


def numbers_section(findings: Findings) -> Section:
    """The means, and how sure their differences are."""
    evaluation, summary = findings.evaluation, findings.evaluation.summary()
    where = from_to("_to_".join(evaluation.modalities)) if evaluation.modalities else ""
    texts = differences(summary)
    drawn = {
        name: interval_in_points(interval)
        for name, interval in zip(texts, summary["differences"].values(), strict=True)
    }
    sentences = [
        f"Percent{where and ', ' + where}. old/old is the service before the upgrade, new/old the "
        f"day of the upgrade, new/new after a full backfill. “in order” is the share of triples in "
        f"which a relevant item ranks before an irrelevant one.",
        *scores_sentence(summary),
    ]
    return Section(
        "The numbers",
        " ".join(sentences),
        tables=[metrics_table(summary)],
        figures=[
            Figure(
                lambda: intervals(
                    drawn, label="difference of mAP, in points; bars are 95 % intervals"
                ),
                "How sure the differences are",
                "; ".join(f"{name}: {text}" for name, text in texts.items()) + ".",
            )
        ],
    )


def tests_section(tests: Mapping[str, Mapping[str, Any]]) -> Section:
    """The results of the same models on other tests."""
    columns = ["test", "old/old", "new/old", "new/new", "difference (95 %)", "verdict"]
    rows = [
        [
            name,
            *(maybe(result[key]) for key in ("old_old", "new_old", "new_new")),
            in_points(result["differences"][CHANGE]),
            result["verdict"],
        ]
        for name, result in tests.items()
    ]
    return Section(
        "Other tests",
        "mAP in percent.",
        tables=[Table(columns, rows, frozenset(columns[1:-1]))],
    )


def slice_sections(findings: Findings) -> list[Section]:
    """The change of each class, and of each value of the other columns."""
    return [slice_section(column, parts) for column, parts in findings.slices.items() if parts]


def confused_section(findings: Findings) -> list[Section]:
    """The pairs of classes that the old space confuses, and how new queries separate them."""
    if not findings.confused:
        return []
    columns = [
        "class", "and class", "cosine, old", "new", "queries", "confused old/old", "new/old",
        "new/new",
    ]  # fmt: skip
    rows = [
        [
            str(pair.one),
            str(pair.other),
            _digits(pair.old_cosine, 3),
            _digits(pair.new_cosine, 3),
            f"{pair.queries:,}",
            *(
                maybe(share, digits=0, unit=" %")
                for share in (pair.old_old, pair.new_old, pair.new_new)
            ),
        ]
        for pair in findings.confused
    ]
    return [
        Section(
            "Classes that the old space cannot tell apart",
            "The pairs of classes whose old gallery means are most similar. A query is confused if "
            "the best item of the other class scores as high as the best of its own.",
            tables=[Table(columns, rows, frozenset(columns[2:]))],
        )
    ]


def scores_section(findings: Findings) -> list[Section]:
    """The cosines of each pair of models, and thresholds on them."""
    if not findings.similarities:
        return []
    columns = [
        "query/gallery", "strangers pass", "threshold", "own class passes",
        "old threshold: strangers", "own class",
    ]  # fmt: skip
    rows = [
        [
            pair_name(part.pair),
            percent(own.false_accept, digits=2),
            f"{own.value:.4f}",
            percent(own.true_accept),
            percent(kept.false_accept, digits=2),
            percent(kept.true_accept),
        ]
        for part in findings.similarities
        for own, kept in zip(part.thresholds, part.kept, strict=True)
    ]
    named = {pair_name(part.pair): part for part in findings.similarities}
    panels = {name: (part.edges, part.same, part.different) for name, part in named.items()}
    marks = {name: (part.thresholds[0].value, part.kept[0].value) for name, part in named.items()}
    words = "; ".join(
        f"{name}: mean cosine {part.mean_same:.3f} within a class and {part.mean_different:.3f} "
        f"between classes"
        for name, part in named.items()
    )
    return [
        Section(
            "Scores and thresholds",
            "An application that compares scores with a fixed threshold (duplicates, faces, “no "
            "result”) must change the threshold with the model. The last two columns show what "
            "happens if the old threshold stays.",
            tables=[Table(columns, rows, frozenset(columns[1:]))],
            figures=[
                Figure(
                    lambda: score_curves(panels, marks),
                    "Cosines of queries to their own class and to strangers; the line is the "
                    "threshold at which 0.1 % of the strangers pass, dotted the old one",
                    f"{words}.",
                )
            ],
        )
    ]


def spaces_section(findings: Findings) -> list[Section]:
    """The geometry of each gallery, and a map of some classes."""
    if not findings.spaces:
        return []
    alignment = {part.pair: part.alignment for part in findings.similarities}
    own = {"old": "old_old", "new": "new_new", "independent": "independent"}
    columns = ["space", "spread", "spread, centred", "alignment", "uniformity"]
    rows = [
        [
            name,
            _digits(facts.spread, 4),
            _digits(facts.spread_centred, 4),
            _digits(alignment.get(own[name]), 3),
            _digits(facts.uniformity, 3),
        ]
        for name, facts in findings.spaces.items()
    ]
    figures = []
    if (plane := findings.map) is not None:
        figures.append(
            Figure(
                lambda: queries_on_gallery(plane.points, plane.classes, plane.names),
                f"The classes most alike in the old space: stored items as dots, their means as "
                f"stars, queries as rings; {LAYOUTS[plane.kind]}",
                f"Old gallery items of {len(plane.names)} classes, and queries of the same classes "
                f"by the old and by the new model: {', '.join(plane.names)}.",
            )
        )
    return [
        Section(
            "The spaces",
            "Spread: standard deviation of the cosines between class means; low if classes are "
            "evenly apart. Alignment: mean squared distance of a query to its own class, low is "
            "close. Uniformity: how evenly items lie on the sphere, low is even.",
            tables=[Table(columns, rows, frozenset(columns[1:]))],
            figures=figures,
        )
    ]


def _digits(value: float | None, digits: int) -> str:
    """A number, or a dash if it was not measured."""
    return "–" if value is None or isnan(value) else f"{value:.{digits}f}"
