"""Results of several runs: means over seeds, and differences from the Baseline."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, stdev
from typing import Any

from nobackfill.errors import DataError
from nobackfill.evaluation.bootstrap import student_quantile
from nobackfill.evaluation.verdict import between, directions_of, what_falls

BASELINE = "prototype_alignment"


@dataclass(frozen=True)
class Outcome:
    """Result of a finished run.

    Attributes:
        name: Name of its folder.
        kind: Method, with settings that differ; runs that differ only by the seed share it.
        seed: Seed of the training.
        summary: Result of `Evaluation.summary`.
        data: Dataset and its options; runs in one table share it.
    """

    name: str
    kind: str
    seed: int
    summary: Mapping[str, Any]
    data: str = ""


@dataclass(frozen=True)
class Spread:
    """A mean over seeds.

    Attributes:
        mean: The mean.
        half: Half the width of its 95 % interval; None with a single seed.
        seeds: Number of seeds.
    """

    mean: float
    half: float | None
    seeds: int

    def text(self, *, digits: int = 1, sign: bool = False) -> str:
        """The mean in percent, with half its interval: "41.0 ± 2.5"."""
        shown = f"{100 * self.mean:{'+' if sign else ''}.{digits}f}"
        return shown if self.half is None else f"{shown} ± {100 * self.half:.{digits}f}"

    def summary(self) -> dict[str, float | int | None]:
        """The spread for JSON."""
        return {"mean": self.mean, "half_width": self.half, "seeds": self.seeds}


def over_seeds(values: Sequence[float | None]) -> Spread | None:
    r"""The mean over seeds with its 95 % interval, by Student's distribution.

    .. math::
        \bar x \pm t_{n-1}\, s / \sqrt{n}

    None if a value was not measured.
    """
    known = [value for value in values if value is not None]
    if not known or len(known) < len(values):
        return None
    if len(known) == 1:
        return Spread(known[0], None, 1)
    half = -student_quantile(0.025, len(known) - 1) * stdev(known) / len(known) ** 0.5
    return Spread(mean(known), half, len(known))


def check_same_search(outcomes: Sequence[Outcome]) -> None:
    """Raises `DataError` if runs searched different items or used different protocols."""
    first = outcomes[0]
    for other in outcomes[1:]:
        for differ, what in (
            (other.summary["searched"] != first.summary["searched"], "items"),
            (other.data != first.data, "items"),
            (other.summary["protocol"] != first.summary["protocol"], "protocols"),
        ):
            if differ:
                raise DataError(
                    f"The runs {first.name} and {other.name} used different {what} "
                    f"({first.summary['num_gallery']:,} and {other.summary['num_gallery']:,} "
                    f"gallery items, {first.summary['protocol']} and {other.summary['protocol']}), "
                    f"so one table cannot compare them. Make a report of each."
                )


def comparison_of(outcomes: Sequence[Outcome]) -> dict[str, dict[str, Any]]:
    """Numbers over seeds for each kind of run, and its difference from the Baseline."""
    kinds: dict[str, dict[int, Mapping[str, Any]]] = {}
    for outcome in outcomes:
        if outcome.seed in kinds.setdefault(outcome.kind, {}):
            raise DataError(
                f"two of `{outcome.kind}` have the seed {outcome.seed}, the second being "
                f"{outcome.name}. Leave one of them out."
            )
        kinds[outcome.kind][outcome.seed] = outcome.summary
    return {kind: _over(seeds, kinds.get(BASELINE, {})) for kind, seeds in kinds.items()}


def _over(
    seeds: Mapping[int, Mapping[str, Any]], baseline: Mapping[int, Mapping[str, Any]]
) -> dict[str, Any]:
    """Numbers of one kind of run; P-scores, too, are fractions."""
    summaries = list(seeds.values())
    keys = ("old_old", "new_old", "new_new", "independent", "gain_recovered")
    shared = [seed for seed in seeds if seed in baseline and seeds is not baseline]
    return {
        "seeds": len(seeds),
        **{key: over_seeds([run[key] for run in summaries]) for key in keys},
        "gain": over_seeds([run["new_old"] - run["old_old"] for run in summaries]),
        **{
            key: over_seeds([None if run[key] is None else run[key] / 100 for run in summaries])
            for key in ("p_up", "p_comp", "p_1")
        },
        "lost": over_seeds([run["flips"][0]["negative"] for run in summaries]),
        "first_answers_worse": sum(any(map(what_falls, counted_in(run))) for run in summaries),
        "verdicts": {
            verdict: sum(run["verdict"] == verdict for run in summaries)
            for verdict in ("compatible", "not compatible", "undecided")
        },
        "against_baseline": over_seeds(
            [seeds[seed]["new_old"] - baseline[seed]["new_old"] for seed in shared]
        ),
    }


def counted_in(summary: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Searches that the verdict of a run counts: one, or all directions between modalities."""
    return list(between(directions_of(summary)).values()) or [summary]
