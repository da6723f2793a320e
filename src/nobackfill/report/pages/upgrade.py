"""The report of one upgrade: may the new model go live today, and where would it hurt?"""

from collections.abc import Mapping, Sequence
from math import isnan, nan
from typing import Any

from nobackfill.evaluation.bootstrap import FEWEST_GROUPS, in_points
from nobackfill.evaluation.findings import Findings
from nobackfill.evaluation.query_changes import Slice
from nobackfill.evaluation.verdict import from_to
from nobackfill.report.charts import intervals, score_curves
from nobackfill.report.maps import queries_on_gallery
from nobackfill.report.numbers import count, maybe, out_of, percent
from nobackfill.report.page import Figure, Page, Section, Table
from nobackfill.report.pages.conclusion import conclude, verdict_of
from nobackfill.report.pages.queries import queries_section
from nobackfill.report.thumbnails import Show, nothing

SHOWN = 25  # slices; JSON has all
PAIRS = {
    "old_old": "old/old",
    "new_old": "new/old",
    "new_new": "new/new",
    "independent": "independent",
}
METRICS = {
    "map": "mAP",
    "recall_at_1": "Recall@1",
    "recall_at_5": "@5",
    "recall_at_10": "@10",
    "ndcg_at_10": "nDCG@10",
    "map_at_100": "mAP@100",
    "in_order": "in order",
}


def upgrade_page(
    findings: Findings,
    *,
    title: str = "May the new model go live on the stored vectors?",
    show: Show = nothing,
    tests: Mapping[str, Mapping[str, Any]] | None = None,
    directions: Mapping[str, Mapping[str, Any]] | None = None,
    made_of: Mapping[str, str] | None = None,
) -> Page:
    """Writes down what was found.

    Args:
        findings: As `findings_of` returns them.
        title: Title of the page.
        show: Makes pictures or texts of items.
        tests: Summaries of other tests of the same models, by name.
        directions: Summaries of all directions between images and texts that were asked, the one
            of the findings among them: the verdict is that of all which `between` counts.
        made_of: Where the numbers come from.
    """
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
        verdict=verdict_of(findings, directions),
        sections=sections,
        not_measured=[*findings.not_measured, *findings.evaluation.notes],
        made_of={
            "queries": out_of(
                int(findings.evaluation.counted.sum()), len(findings.evaluation.query_ids)
            ),
            "gallery": f"{findings.evaluation.num_gallery:,} items",
            "protocol": findings.evaluation.protocol,
            "searched": findings.evaluation.plan.fingerprint,
            **(made_of or {}),
        },
    )


def numbers_section(findings: Findings) -> Section:
    """The means, and how sure their differences are."""
    summary = findings.evaluation.summary()
    columns = ["query/gallery", *METRICS.values()]
    rows = [
        [PAIRS[name], *(maybe(found[key], digits=2) for key in METRICS)]
        for name, found in summary["metrics"].items()
    ]
    differences = {
        " − ".join(PAIRS[name] for name in pair.split(" - ")): one
        for pair, one in summary["differences"].items()
    }
    drawn = {
        name: (100 * one["mean"], _end(one["low"]), _end(one["high"]))
        for name, one in differences.items()
    }
    asked = findings.evaluation.modalities
    text = (
        f"Percent{', ' + from_to('_to_'.join(asked)) if asked else ''}. old/old is the service as "
        f"it is, new/old the day of the upgrade, new/new after a full backfill. “in order” is the "
        f"share of triples in which something relevant comes before something that is not."
    )
    if summary["p_1"] is not None:
        entered = summary["p_scores_of"]
        text += (
            f" P_up {summary['p_up']:.2f}, P_comp {summary['p_comp']:.2f}, P_1 "
            f"{summary['p_1']:.2f} (50 is neutral); M(o,o) is old/old, "
            f"{100 * entered['old_old']:.2f}, and M* the independent model, "
            f"{100 * entered['independent']:.2f}."
        )
    return Section(
        "The numbers",
        text,
        tables=[Table(columns, rows, frozenset(columns[1:]))],
        figures=[
            Figure(
                intervals(drawn, label="difference of mAP, in points; bars are 95 % intervals"),
                "How sure the differences are",
                "; ".join(f"{name}: {in_points(one)}" for name, one in differences.items()) + ".",
            )
        ],
    )


def _end(value: float | None) -> float:
    return float("nan") if value is None else 100 * value


def tests_section(tests: Mapping[str, Mapping[str, Any]]) -> Section:
    """The same models on other tests."""
    columns = ["test", "old/old", "new/old", "new/new", "difference (95 %)", "verdict"]
    rows = [
        [
            name,
            *(maybe(one[key]) for key in ("old_old", "new_old", "new_new")),
            in_points(one["differences"]["new_old - old_old"]),
            one["verdict"],
        ]
        for name, one in tests.items()
    ]
    return Section(
        "Other tests",
        "mAP in percent.",
        tables=[Table(columns, rows, frozenset(columns[1:-1]))],
    )


def slice_sections(findings: Findings) -> list[Section]:
    """What becomes of each class, and of each value of the other columns."""
    sections = []
    for column, slices in findings.slices.items():
        is_class = column == "label"
        least = min((one.queries for one in slices), default=0)
        more = f" The {SHOWN} worst of {len(slices):,}." if len(slices) > SHOWN else ""
        if any(isnan(one.difference.low) for one in slices[:SHOWN]):
            more += f" Intervals need {FEWEST_GROUPS} {'queries' if is_class else 'classes'}."
        sections.append(
            Section(
                "Class by class" if is_class else f"By {column}",
                f"mAP in percent, the worst first; the smallest has "
                f"{count(least, 'query', 'queries')}.{more}",
                tables=[_slice_table("class" if is_class else column, slices[:SHOWN])],
            )
        )
    return [section for section in sections if section.tables[0].rows]


def _slice_table(column: str, slices: Sequence[Slice]) -> Table:
    columns = [column, "queries", "old/old", "new/old", "difference (95 %)", "lose", "win"]
    return Table(
        columns,
        [
            [
                str(one.value),
                f"{one.queries:,}",
                f"{100 * one.old_old:.1f}",
                f"{100 * one.new_old:.1f}",
                in_points(one.difference.summary(), digits=1),
                percent(one.lost, digits=0),
                percent(one.won, digits=0),
            ]
            for one in slices
        ],
        frozenset(columns[1:]),
    )


def confused_section(findings: Findings) -> list[Section]:
    """The classes that the old space cannot tell apart, and what became of each pair."""
    if not findings.confused:
        return []
    columns = [
        "class", "and class", "cosine, old", "new", "queries", "confused old/old", "new/old",
        "new/new",
    ]  # fmt: skip
    return [
        Section(
            "Classes that the old space cannot tell apart",
            "The pairs of classes whose old gallery means lie nearest. A query is confused if the "
            "best item of the other class scores as high as the best of its own.",
            tables=[
                Table(
                    columns,
                    [
                        [
                            str(one.one),
                            str(one.other),
                            f"{one.old_cosine:.3f}",
                            "–" if one.new_cosine is None else f"{one.new_cosine:.3f}",
                            f"{one.queries:,}",
                            *(
                                maybe(part, digits=0, unit=" %")
                                for part in (
                                    one.old_old,
                                    one.new_old,
                                    one.new_new,
                                )
                            ),
                        ]
                        for one in findings.confused
                    ],
                    frozenset(columns[2:]),
                )
            ],
        )
    ]


def scores_section(findings: Findings) -> list[Section]:
    """How scores move, and thresholds with them."""
    if not findings.similarities:
        return []
    columns = [
        "query/gallery", "strangers pass", "threshold", "own class passes",
        "old threshold: strangers", "own class",
    ]  # fmt: skip
    rows = [
        [
            PAIRS[one.pair],
            percent(own.false_accept, digits=2),
            f"{own.value:.4f}",
            percent(own.true_accept),
            percent(kept.false_accept, digits=2),
            percent(kept.true_accept),
        ]
        for one in findings.similarities
        for own, kept in zip(one.thresholds, one.kept, strict=True)
    ]
    panels = {
        PAIRS[one.pair]: (one.edges, one.same, one.different) for one in findings.similarities
    }
    marks = {
        PAIRS[one.pair]: (one.thresholds[0].value, one.kept[0].value)
        for one in findings.similarities
    }
    says = "; ".join(
        f"{PAIRS[one.pair]}: mean cosine {one.mean_same:.3f} within a class and "
        f"{one.mean_different:.3f} between classes"
        for one in findings.similarities
    )
    return [
        Section(
            "Scores and thresholds",
            "Whoever compares scores with a fixed threshold (duplicates, faces, “no result”) must "
            "move it with the model. The last two columns say what happens if nobody does.",
            tables=[Table(columns, rows, frozenset(columns[1:]))],
            figures=[
                Figure(
                    score_curves(panels, marks),
                    "Cosines of queries to their own class and to strangers; the line is the "
                    "threshold at which 0.1 % of the strangers pass, dotted the old one",
                    f"{says}.",
                )
            ],
        )
    ]


def spaces_section(findings: Findings) -> list[Section]:
    """How the spaces look."""
    if not findings.spaces:
        return []
    alignment = {one.pair: one.alignment for one in findings.similarities}
    own = {"old": "old_old", "new": "new_new", "independent": "independent"}
    columns = ["space", "spread", "spread, centred", "alignment", "uniformity"]
    rows = [
        [
            name,
            _digits(one.spread, 4),
            _digits(one.spread_centred, 4),
            _digits(alignment.get(own[name], nan), 3),
            _digits(one.uniformity, 3),
        ]
        for name, one in findings.spaces.items()
    ]
    figures = []
    if findings.map is not None:
        how = {"tsne": "t-SNE", "pca": "the two main directions (PCA)"}[findings.map.kind]
        figures.append(
            Figure(
                queries_on_gallery(findings.map.points, findings.map.classes, findings.map.names),
                f"The classes most alike in the old space: stored items as dots, their means as "
                f"stars, queries as rings; {how}",
                f"Old gallery items of {len(findings.map.names)} classes, and queries of the same "
                f"classes by the old and by the new model: {', '.join(findings.map.names)}.",
            )
        )
    return [
        Section(
            "The spaces",
            "Spread: standard deviation of the cosines between class means; low where classes are "
            "evenly apart. Alignment: mean squared distance of a query to its own class, low is "
            "close. Uniformity: how evenly items lie on the sphere, low is even.",
            tables=[Table(columns, rows, frozenset(columns[1:]))],
            figures=figures,
        )
    ]


def _digits(value: float, digits: int) -> str:
    """A number, or a dash where it was not measured."""
    return "–" if isnan(value) else f"{value:.{digits}f}"
