"""The report of an assessment: is the upgrade worth making, and how?"""

from nobackfill.core.numbers import interval_in_points
from nobackfill.core.page import Figure, Page
from nobackfill.evaluation.bootstrap import in_points
from nobackfill.head.assess import overview
from nobackfill.head.assess.assess import Verdict
from nobackfill.report.charts import intervals


def assessment_page(verdict: Verdict, *, title: str) -> Page:
    """The page that `print` shows, with a figure."""
    return overview.assessment_page(verdict, title=title, figures=[gains_figure(verdict)])


def gains_figure(verdict: Verdict) -> Figure:
    """The gain of each way with its interval."""
    gains = {candidate.name: candidate.gain.summary() for candidate in verdict.candidates[1:]}
    drawn = {name: interval_in_points(gain) for name, gain in gains.items()}
    return Figure(
        lambda: intervals(drawn, label="gain in points of mAP; bars are 95 % intervals"),
        "Against keeping the old model",
        "; ".join(f"{name}: {in_points(gain)}" for name, gain in gains.items()) + ".",
    )
