"""A report and its files: the page as HTML and Markdown, its facts as JSON, queries as Parquet."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nobackfill.core.atomic_files import write_text
from nobackfill.core.page import Page
from nobackfill.core.steps import Watch, unwatched
from nobackfill.evaluation.agreement import Agreement
from nobackfill.evaluation.by_modality import ByModality
from nobackfill.evaluation.evaluate import Evaluation
from nobackfill.evaluation.findings import findings_of
from nobackfill.evaluation.query_changes import compare
from nobackfill.report.html import render_html
from nobackfill.report.markdown import render_markdown
from nobackfill.report.pages.backfill import backfill_section
from nobackfill.report.pages.by_modality import modalities_page
from nobackfill.report.pages.judging import SIDE, judging_sheet, unlabelled_page
from nobackfill.report.pages.upgrade import upgrade_page
from nobackfill.report.thumbnails import show_files
from nobackfill.report.titles import check_page
from nobackfill.vectors import Vectors

ANALYSING = "report: analysing queries, classes and scores"
DRAWING = "report: drawing the page"


@dataclass(frozen=True, eq=False)
class Report:
    """A page with its facts and, for a single upgrade, its evaluation.

    Attributes:
        page: The page.
        facts: Content of the JSON file.
        evaluation: Evaluation whose queries go into a Parquet file; None if there are several runs.
    """

    page: Page
    facts: Mapping[str, Any]
    evaluation: Evaluation | None = None

    def save(self, path: Path) -> list[Path]:
        """Writes the page, and next to it .md, .json and .queries.parquet; returns the paths.

        All texts are made before the first file is written.
        """
        check_page(path)
        texts = {  # the page first: it marks the files next to it as parts of a report
            path: render_html(self.page),
            path.with_suffix(".json"): json.dumps(self.facts, indent=1, allow_nan=False) + "\n",
            path.with_suffix(".md"): render_markdown(self.page),
        }
        for place, text in texts.items():
            write_text(place, text)
        queries = [] if self.evaluation is None else [path.with_suffix(".queries.parquet")]
        if self.evaluation is not None:
            compare(self.evaluation).save_queries(queries[0])
        return [*queries, path.with_suffix(".json"), path.with_suffix(".md"), path]


def report_vectors(
    evaluation: Evaluation, files: Sequence[Vectors], *, title: str, watch: Watch = unwatched
) -> Report:
    """The report on two files of vectors.

    Args:
        evaluation: Result of `evaluate`.
        files: Old and new vectors; their columns `path` and `text` show items.
        title: Title of the page.
        watch: Receives the name of each step. With many items the report takes longer than the
            search.
    """
    watch(ANALYSING)
    findings, spaces = findings_of(evaluation), _spaces(files)
    watch(DRAWING)
    page = upgrade_page(findings, title=title, show=show_files(files), made_of=spaces)
    return Report(page, {**findings.summary(), "made_of": spaces}, evaluation)


def report_agreement(
    agreement: Agreement,
    files: Sequence[Vectors],
    path: Path,
    *,
    title: str,
    verdict: str = "undecided",
    facts: Mapping[str, Any] | None = None,
) -> None:
    """Writes the report on two files without labels, with queries for a person to judge.

    Args:
        agreement: Result of `compare_rankings` or `assess_rankings`.
        files: Old and new vectors; their columns `path` and `text` show items.
        path: Path of the page, which ends in .html.
        title: Title of the page.
        verdict: Word for the verdict in the command's output.
        facts: Content of the JSON file; the numbers of the comparison by default.
    """
    show = show_files(files, side=SIDE)
    sheet = judging_sheet(agreement, show, file_name=f"{path.stem}.answers.jsonl")
    page = unlabelled_page(agreement, title=title, verdict=verdict, judging=sheet)
    Report(page, facts or agreement.summary()).save(path)


def report_modalities(result: ByModality, files: Sequence[Vectors], *, title: str) -> Report:
    """The report on two files of vectors, one direction between modalities at a time.

    Args:
        result: Result of `evaluate_modalities`.
        files: Old and new vectors.
        title: Title of the page.
    """
    spaces = _spaces(files)
    page = modalities_page(result, title=title, made_of=spaces)
    return Report(page, {**result.summary(), "made_of": spaces})


def report_backfill(plan: Mapping[str, Any]) -> Report:
    """The report on a backfill plan.

    Args:
        plan: Result of `BackfillPlan.summary`.
    """
    page = Page(
        "Which items should be embedded again?",
        [plan["advice"][0].upper() + plan["advice"][1:]],
        [backfill_section(plan)],
        notes=plan["notes"],
    )
    return Report(page, plan)


def _spaces(files: Sequence[Vectors]) -> dict[str, str]:
    """Fingerprints of the old and the new space."""
    return {
        f"{name} space": file.space.fingerprint if file.space else "not declared"
        for name, file in zip(("old", "new"), files, strict=False)
    }
