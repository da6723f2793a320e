"""What the lines of one suite say: every way on the seeds it has, and pairs on the same seeds."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from nobackfill.errors import DataError
from nobackfill.evaluation.scores import PScores, p_scores
from nobackfill.methods import METHODS
from nobackfill_bench.quality.paired_statistics import Mean, mean_of
from nobackfill_bench.quality.suite import read_way
from nobackfill_bench.results_log import Line

BASELINE = "prototype_alignment"
OURS = "janus"
CEILINGS = ("independent", "independent_contrastive")  # what no old gallery is asked with

Measure = Callable[[Line], float | None]  # of one run; None where it cannot be told


@dataclass(frozen=True)
class Compared:
    """The runs of a suite under the same changes, by way and seed.

    Attributes:
        runs: The lines.
    """

    runs: Mapping[str, Mapping[int, Line]]

    @classmethod
    def of(cls, lines: Iterable[Line]) -> "Compared":
        """From lines of one suite and one set of changes."""
        runs: dict[str, dict[int, Line]] = defaultdict(dict)
        for line in lines:
            runs[line["way"]][line["seed"]] = line
        return cls(runs)

    def on_test(self, test: str) -> "Compared":
        """The same runs, with what came out on another test in place of the first.

        What was said of the first test alone is left out.
        """
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
        """Of each seed, new/new of the independent model."""
        found = {seed: line["new_new"] for seed, line in self.runs.get("independent", {}).items()}
        for seeds in self.runs.values():
            found |= {
                seed: line["independent"]
                for seed, line in seeds.items()
                if line.get("independent") is not None
            }
        return found

    @cached_property
    def old_old(self) -> dict[int, float]:
        """Of each seed, old/old of the old model that all share but those with one of their own."""
        return {
            seed: line["old_old"]
            for way, seeds in self.runs.items()
            for seed, line in seeds.items()
            if not has_own_old_model(way)
        }

    @cached_property
    def ways(self) -> list[str]:
        """All ways, the best P_1 first; those without a P_1 by new/old, last."""

        def place(way: str) -> tuple[bool, float]:
            score = self.mean(way, self.p_1)
            known = score.seeds > 0
            return known, score.value if known else self.mean(way, value("new_old")).value

        return sorted(self.runs, key=place, reverse=True)

    def scores(self, line: Line) -> PScores | None:
        """The P-scores of a run; None where there is no gain to measure against."""
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
        """Which share of the gain of a full backfill there is without any, in percent."""
        ceiling = self.ceilings.get(line["seed"])
        if ceiling is None or ceiling <= line["old_old"]:
            return None
        return float(100 * (line["new_old"] - line["old_old"]) / (ceiling - line["old_old"]))

    def free(self, line: Line) -> float | None:
        """How far new/new is above the independent model's, in points."""
        ceiling = self.ceilings.get(line["seed"])
        return None if ceiling is None else 100 * (line["new_new"] - ceiling)

    def room(self, line: Line) -> float | None:
        """How far the independent model is above the old one, in points."""
        ceiling = self.ceilings.get(line["seed"])
        return None if ceiling is None else 100 * (ceiling - line["old_old"])

    def mean(self, way: str, measure: Measure) -> Mean:
        """Of one way over its seeds."""
        found = [measure(line) for line in self.runs.get(way, {}).values()]
        return mean_of([one for one in found if one is not None])

    def difference(self, way: str, other: str, measure: Measure) -> Mean:
        """Of two ways on the same seeds."""
        mine, theirs = self.runs.get(way, {}), self.runs.get(other, {})
        pairs = [(measure(mine[seed]), measure(theirs[seed])) for seed in mine if seed in theirs]
        return mean_of([a - b for a, b in pairs if a is not None and b is not None])

    def best_other(self, way: str) -> str | None:
        """Which other way has the highest P_1; ceilings do not count."""
        others = (one for one in self.ways if one != way and one not in CEILINGS)
        return next((one for one in others if self.mean(one, self.p_1).seeds > 0), None)


def has_own_old_model(way: str) -> bool:
    """Whether a way has another old model than the others: one of its own kind."""
    name, _ = read_way(way)
    return name in METHODS and METHODS[name].same_kind


def value(key: str) -> Measure:
    """A number of a line, in percent."""
    return lambda line: None if line.get(key) is None else 100 * line[key]


def gain(line: Line) -> float:
    """How far new/old is above old/old, in points."""
    return float(100 * (line["new_old"] - line["old_old"]))


def seconds_per_epoch(line: Line) -> float | None:
    """What an epoch cost; None where that was not measured."""
    if not line.get("seconds") or not line.get("epochs"):
        return None
    return float(line["seconds"] / line["epochs"])
