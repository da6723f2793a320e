"""`nobackfill assess` on files without labels, and on the judgements of a person."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from nobackfill.cli.exit_codes import code_of_assessment
from nobackfill.cli.output import print_page
from nobackfill.cli.progress import doing, searching_progress
from nobackfill.errors import ConfigError

if TYPE_CHECKING:
    import torch

    from nobackfill.data.listing import GroundTruth
    from nobackfill.evaluation.judgements import Judged
    from nobackfill.head.inputs import FitInputs

UNKNOWN = "quality was not measured: there are no labels, pairs or groups."


@dataclass(frozen=True)
class Unlabelled:
    """Inputs and outputs of an assessment without labels.

    Attributes:
        data: Vectors of both models.
        title: Title of the report.
        report: Path of the report; None for no report.
        as_json: Whether to print JSON.
        k: Number of first results that a second stage ranks again.
        seed: Random seed.
        device: Device of the search.
    """

    data: "FitInputs"
    title: str
    report: Path | None
    as_json: bool
    k: int
    seed: int
    device: "torch.device"

    def compare(self) -> int:
        """Compares rankings, prints how far they agree, returns the exit code."""
        from nobackfill.evaluation.agreement_overview import agreement_page
        from nobackfill.head.assess.without_labels import assess_rankings

        files = self.data.old, self.data.new
        with searching_progress() as progress:
            agreement = assess_rankings(
                *files, k=self.k, seed=self.seed, device=self.device, progress=progress
            )
        agreement = replace(agreement, notes=[*self.data.notes, *agreement.notes])
        answer = {"verdict": "inconclusive", "reason": UNKNOWN, "candidates": []}
        facts = agreement.summary() | answer
        if self.report is not None:
            with doing() as show_step:
                from nobackfill.report.build import report_agreement

                show_step("writing the page")
                report_agreement(
                    agreement, files, self.report, title=self.title, facts=facts,
                    verdict="inconclusive",
                )  # fmt: skip
        page = agreement_page(agreement, verdict="inconclusive", report=self.report)
        print_page(page, facts, as_json=self.as_json, report=self.report)
        return code_of_assessment("inconclusive")

    def judge(self, truth: "GroundTruth") -> int:
        """Prints what the judgements of a person show, returns the exit code."""
        from nobackfill.evaluation.judged_overview import judged_page
        from nobackfill.head.assess.without_labels import judge_mapped

        with doing() as show_step:
            show_step("searching")
            judged = judge_mapped(
                self.data.old, self.data.new, truth, seed=self.seed, device=self.device
            )
        verdict, reason = answer_of(judged)
        page = judged_page(judged, title=self.title, verdict=verdict)
        page = replace(page, summary=[reason, *page.summary])
        facts = judged.summary() | {"verdict": verdict, "reason": reason, "candidates": []}
        if self.report is not None:
            from nobackfill.report.build import Report

            Report(page, facts).save(self.report)
        print_page(page, facts, as_json=self.as_json, report=self.report)
        return code_of_assessment(verdict)


def answer_of(judged: "Judged") -> tuple[str, str]:
    """The verdict of an assessment and its reason, from the judgements of a person.

    Only new queries on the stored vectors were judged, so an upgrade in another way stays open.
    """
    if judged.verdict == "compatible":
        return "upgrade with head", "A person prefers the results of mapped new queries."
    if judged.verdict == "not compatible":
        return "inconclusive", (
            "A person prefers the old results to those of mapped new queries; a second stage and a "
            "backfill were not judged."
        )
    return "inconclusive", "The judgements do not decide between old and mapped new queries."


def check_methods(methods: Sequence[str] | None) -> None:
    """Raises `ConfigError` if methods were passed: without labels, no head is fitted by them."""
    if methods:
        raise ConfigError(
            f"--method {methods[0]} requires labels or pairs, but neither file has a column "
            f"`label`. Name a column of labels (--label) or a file of pairs (--pairs), or leave "
            f"--method out."
        )
