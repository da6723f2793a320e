"""`nobackfill evaluate` on files without labels, and on the judgements of a person."""

from typing import TYPE_CHECKING, Any

from nobackfill.cli.output import print_page
from nobackfill.cli.progress import doing, searching_progress
from nobackfill.errors import ConfigError

if TYPE_CHECKING:
    from nobackfill.cli.evaluate.command import Search
    from nobackfill.data.listing import GroundTruth

ACCEPTED = ("query_for_old", "protocol", "intersect", "sessions", "seed", "device")


def run_without_labels(
    search: "Search", judged: "GroundTruth | None", options: dict[str, Any]
) -> str:
    """Compares rankings, or counts judgements; prints the result and returns the verdict.

    Args:
        search: Inputs and outputs of the evaluation.
        judged: Judgements of a person; None to compare rankings.
        options: Values of the options that require labels, by name; an error if any is set.
    """
    from nobackfill.evaluation.file_columns import check_one_label

    if judged is None:
        check_one_label(search.files)
    check_unlabelled(options, judged)
    return run_unlabelled(search) if judged is None else run_judged(search, judged)


def run_unlabelled(search: "Search") -> str:
    """Compares rankings, prints how far they agree, returns the verdict "undecided"."""
    from nobackfill.evaluation.agreement import compare_rankings
    from nobackfill.evaluation.agreement_overview import agreement_page

    with searching_progress() as progress:
        agreement = compare_rankings(*search.files, **accepted(search), progress=progress)
    if search.report is not None:
        with doing() as show_step:
            from nobackfill.report.build import report_agreement

            show_step("writing the page")
            report_agreement(agreement, search.files, search.report, title=search.title)
    page = agreement_page(agreement, report=search.report)
    print_page(page, agreement.summary(), as_json=search.as_json, report=search.report)
    return agreement.verdict


def run_judged(search: "Search", truth: "GroundTruth") -> str:
    """Prints what the judgements of a person show, returns the verdict."""
    from nobackfill.evaluation.judgements import judge

    with doing() as show_step:
        show_step("searching")
        metrics = search.options["gate"].metrics
        old, new = search.files
        judged = judge(old, new, truth, metrics=metrics, **accepted(search))
    page = judged.page()
    if search.report is not None:
        from nobackfill.report.build import Report

        Report(page, judged.summary()).save(search.report)
    print_page(page, judged.summary(), as_json=search.as_json, report=search.report)
    return judged.verdict


def accepted(search: "Search") -> dict[str, Any]:
    """The options that need no labels."""
    return {name: search.options[name] for name in ACCEPTED}


def check_unlabelled(options: dict[str, Any], truth: "GroundTruth | None") -> None:
    """Raises `ConfigError` for options that require all relevant items."""
    passed = [name for name, value in options.items() if value not in (None, False, 0, [])]
    if not passed:
        return
    reason = (
        "neither file has a column `label`"
        if truth is None
        else "this file of pairs has the judgements of a person, who saw a few results"
    )
    raise ConfigError(
        f"{', '.join(passed)} {'requires' if len(passed) == 1 else 'require'} labels or complete "
        f"pairs, but {reason}. Name a column of labels (--label) or another file (--pairs), or "
        f"leave {'it' if len(passed) == 1 else 'them'} out."
    )
