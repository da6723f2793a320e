"""`nobackfill evaluate` on files without labels, and on the judgements of a person."""

from typing import TYPE_CHECKING

from nobackfill.cli.output import print_page
from nobackfill.cli.progress import doing, searching_progress
from nobackfill.errors import ConfigError
from nobackfill.report.build import Report
from nobackfill.report.pages.agreement import (
    SIDE,
    agreement_page,
    judged_page,
    judging_sheet,
)
from nobackfill.report.thumbnails import show_files

if TYPE_CHECKING:
    from nobackfill.cli.evaluate.command import Search
    from nobackfill.data.listing import GroundTruth

NEED_LABELS = {"independent"}  # options that rankings alone cannot use
ACCEPTED = ("query_for_old", "protocol", "intersect", "sessions", "seed", "device")


def run_unlabelled(search: "Search") -> str:
    """Compares rankings, prints how far they agree, returns the verdict "undecided"."""
    from nobackfill.evaluation.agreement import compare_rankings

    with searching_progress() as progress:
        agreement = compare_rankings(*search.files, **accepted(search), progress=progress)
    page = agreement_page(agreement, title=search.title)
    if search.report is not None:
        with doing() as show_step:
            show_step("writing the page")
            file_name = f"{search.report.stem}.answers.jsonl"
            show = show_files(search.files, side=SIDE)
            sheet = judging_sheet(agreement, show, file_name=file_name)
            full = agreement_page(agreement, title=search.title, judging=sheet)
            Report(full, agreement.summary()).save(search.report)
    print_page(page, agreement.summary(), as_json=search.as_json, report=search.report)
    return "undecided"


def run_judged(search: "Search", truth: "GroundTruth") -> str:
    """Prints what the judgements of a person show, returns the verdict."""
    from nobackfill.evaluation.judgements import judge

    gate = search.options["gate"]
    if gate.min_gain or gate.max_negative_flips is not None:
        raise ConfigError(
            "--min-gain and --max-negative-flips need labels or complete pairs, but this file has "
            "judgements of a few results. Leave them out."
        )
    with doing() as show_step:
        show_step("searching")
        judged = judge(*search.files, truth, metrics=gate.metrics, **accepted(search))
    page = judged_page(judged, title=search.title, verdict=judged.verdict)
    if search.report is not None:
        Report(page, judged.summary()).save(search.report)
    print_page(page, judged.summary(), as_json=search.as_json, report=search.report)
    return judged.verdict


def accepted(search: "Search") -> dict[str, object]:
    """The options that need no labels."""
    return {name: search.options[name] for name in ACCEPTED}
