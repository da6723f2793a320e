"""Results of a suite: variants averaged over seeds and compared in pairs on the same seeds."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf, nan, sqrt
from statistics import fmean, stdev

from nobackfill.core.config.defaults import DEFAULT_METHOD
from nobackfill.errors import DataError
from nobackfill.evaluation.scores import PScores, p_scores
from nobackfill.methods import METHODS
from nobackfill_bench.quality.suite import read_way
from nobackfill_bench.results_log import Line

BASELINE = "prototype_alignment"
OURS = DEFAULT_METHOD
EARLIER = "janus"  # the default until November 2026
CEILINGS = ("independent", "independent_contrastive")  # not meant to search the old gallery

Measure = Callable[[Line], float | None]  # value of a run; None if it is not defined

# 97.5 % quantiles of Student's t, for 1, 2, ... degrees of freedom
QUANTILES = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
    2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
    2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip


@dataclass(frozen=True)
class Mean:
    """A mean over seeds with its 95 % interval.

    Attributes:
        value: The mean.
        half: Half the width of the interval; infinite for one seed.
        seeds: Number of seeds.
    """

    value: float
    half: float
    seeds: int

    @property
    def low(self) -> float:
        """Lower end of the interval."""
        return self.value - self.half

    @property
    def high(self) -> float:
        """Upper end of the interval."""
        return self.value + self.half


def mean_of(values: Sequence[float]) -> Mean:
    r"""Mean of independent values with its 95 % interval by Student's t.

    .. math::
        \bar x \pm t_{0.975, n - 1} \, s / \sqrt n

    Example:
        >>> mean_of([1.0, 2.0, 3.0])
        Mean(value=2.0, half=2.484..., seeds=3)
    """
    if not values:
        return Mean(nan, nan, 0)
    if len(values) == 1:
        return Mean(values[0], inf, 1)
    quantile = QUANTILES[min(len(values) - 1, len(QUANTILES)) - 1]
    return Mean(fmean(values), quantile * stdev(values) / sqrt(len(values)), len(values))


@dataclass(frozen=True)
class Compared:
    """Runs of a suite under the same changes.

    Attributes:
        runs: Result lines by variant and seed.
    """

    runs: Mapping[str, Mapping[int, Line]]

    @classmethod
    def of(cls, lines: Iterable[Line]) -> "Compared":
        """Groups the lines of a suite with the same changes."""
        runs: dict[str, dict[int, Line]] = defaultdict(dict)
        for line in lines:
            runs[line["way"]][line["seed"]] = line
        return cls(runs)

    def on_test(self, test: str) -> "Compared":
        """Returns the runs with the results of another test in place of those of the first."""
        kept = ("suite", "way", "seed", "changes", "device", "seconds", "epochs")
        return Compared(
            {
                way: {
                    seed: {key: line.get(key) for key in kept} | line["tests"][test]
                    for seed, line in seeds.items()
                }
                for way, seeds in self.runs.items()
            }
        )

    @cached_property
    def ceilings(self) -> dict[int, float]:
        """New/new mAP of the independent model of each seed."""
        ceilings = {
            seed: line["new_new"] for seed, line in self.runs.get("independent", {}).items()
        }
        for seeds in self.runs.values():
            ceilings |= {
                seed: line["independent"]
                for seed, line in seeds.items()
                if line.get("independent") is not None
            }
        return ceilings

    @cached_property
    def old_old(self) -> dict[int, float]:
        """Old/old mAP of the shared old model of each seed."""
        return {
            seed: line["old_old"]
            for way, seeds in self.runs.items()
            for seed, line in seeds.items()
            if not has_own_old_model(way)
        }

    @cached_property
    def ways(self) -> list[str]:
        """All variants by descending P_1; those without a P_1 follow by descending new/old."""

        def place(way: str) -> tuple[bool, float]:
            score = self.mean(way, self.p_1)
            known = score.seeds > 0
            return known, score.value if known else self.mean(way, value("new_old")).value

        return sorted(self.runs, key=place, reverse=True)

    def scores(self, line: Line) -> PScores | None:
        """P-scores of a run; None if the independent model gains nothing over the old one."""
        ceiling = self.ceilings.get(line["seed"])
        if ceiling is None:
            return None
        try:
            return p_scores(line["new_new"], line["new_old"], line["old_old"], ceiling)
        except DataError:
            return None

    def p_up(self, line: Line) -> float | None:
        """See `nobackfill.p_scores`."""
        scores = self.scores(line)
        return scores.up if scores else None

    def p_comp(self, line: Line) -> float | None:
        """See `nobackfill.p_scores`."""
        scores = self.scores(line)
        return scores.comp if scores else None

    def p_1(self, line: Line) -> float | None:
        """See `nobackfill.p_scores`."""
        scores = self.scores(line)
        return scores.one if scores else None

    def gain_recovered(self, line: Line) -> float | None:
        """Share of a full backfill's gain that the run reaches without a backfill, in percent."""
        ceiling = self.ceilings.get(line["seed"])
        if ceiling is None or ceiling <= line["old_old"]:
            return None
        return float(100 * (line["new_old"] - line["old_old"]) / (ceiling - line["old_old"]))

    def free(self, line: Line) -> float | None:
        """Difference of new/new from the independent model's, in points."""
        ceiling = self.ceilings.get(line["seed"])
        return None if ceiling is None else 100 * (line["new_new"] - ceiling)

    def room(self, line: Line) -> float | None:
        """Gain of the independent model over the old one, in points."""
        ceiling = self.ceilings.get(line["seed"])
        return None if ceiling is None else 100 * (ceiling - line["old_old"])

    def mean(self, way: str, measure: Measure) -> Mean:
        """Mean of a measure over the seeds of a variant."""
        values = [measure(line) for line in self.runs.get(way, {}).values()]
        return mean_of([number for number in values if number is not None])

    def difference(self, way: str, other: str, measure: Measure) -> Mean:
        """Mean paired difference of two variants over the seeds that both have."""
        first, second = self.runs.get(way, {}), self.runs.get(other, {})
        pairs = [(measure(first[seed]), measure(second[seed])) for seed in first if seed in second]
        return mean_of([a - b for a, b in pairs if a is not None and b is not None])

    def best_other(self, way: str) -> str | None:
        """Returns the other variant with the highest P_1, without the ceilings."""
        others = (name for name in self.ways if name != way and name not in CEILINGS)
        return next((name for name in others if self.mean(name, self.p_1).seeds > 0), None)


def has_own_old_model(way: str) -> bool:
    """Whether the variant needs an old model trained by the same method."""
    name, _ = read_way(way)
    return name in METHODS and METHODS[name].same_kind


def value(key: str) -> Measure:
    """Measure that reads a number of a line, in percent."""
    return lambda line: None if line.get(key) is None else 100 * line[key]


def both(line: Line) -> float:
    """Mean of new/old and new/new, in percent: a score that needs no independent model."""
    return float(50 * (line["new_old"] + line["new_new"]))


def gain(line: Line) -> float:
    """Difference of new/old from old/old, in points."""
    return float(100 * (line["new_old"] - line["old_old"]))


def seconds_per_epoch(line: Line) -> float | None:
    """Seconds per epoch; None if the run was not timed."""
    if not line.get("seconds") or not line.get("epochs"):
        return None
    return float(line["seconds"] / line["epochs"])
