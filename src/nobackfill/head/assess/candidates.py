"""Ways to serve an upgrade, with their metrics and what they change for each query."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from nobackfill.evaluation.bootstrap import Interval, paired_interval
from nobackfill.evaluation.gate import Gate
from nobackfill.evaluation.mixed_scores import Metrics
from nobackfill.evaluation.verdict import Verdict

KEEP: Literal["keep the old model"] = "keep the old model"  # a candidate and an answer
CONTROL = "old vectors with a head"
BOTH: Literal["both models ask"] = "both models ask"  # a candidate and an answer
FULL: Literal["full backfill"] = "full backfill"  # a candidate and an answer


@dataclass(frozen=True)
class Candidate:
    """One way to serve the upgrade. Changes and flips are against keeping the old model."""

    name: str
    validation: float  # mAP on the validation classes, which the choice was made on
    metrics: Mapping[str, float]  # each weighed metric on the test classes, by its key in JSON
    changes: Mapping[str, Interval]  # change of each of them, with its interval
    added: Interval  # difference of mAP to a head on the old model's own vectors
    lost: Interval  # share of the queries that lose their first hit
    gained: Interval  # share of the queries that gain a first hit

    @property
    def test(self) -> float:
        """Mean average precision on the test classes."""
        return self.metrics["map"]

    @property
    def gain(self) -> Interval:
        """Change of mAP on the test classes."""
        return self.changes["map"]

    @property
    def uses_new(self) -> bool:
        """Whether it uses the new model."""
        return self.name not in (KEEP, CONTROL)

    @cached_property
    def verdict(self) -> Verdict:
        """Verdict of `evaluate` on such changes."""
        return Gate().decide(self.changes, self.lost)

    @property
    def pays(self) -> bool:
        """Whether mAP surely rises, no other metric surely falls, and labels are not the reason.

        A full backfill fits nothing to labels; other ways must beat a head on the old vectors, too.
        """
        return self.verdict == "compatible" and (self.name == FULL or self.added.low > 0)

    def row(self) -> dict[str, Any]:
        """Returns the row of a table: metrics, changes with their intervals, and flips."""
        intervals = {f"{name}_change": change for name, change in self.changes.items()}
        intervals["added"] = self.added
        ends = {"": "mean", "_low": "low", "_high": "high"}
        return {
            "way": self.name,
            **self.metrics,
            **{
                f"{name}{end}": getattr(interval, part)
                for name, interval in intervals.items()
                for end, part in ends.items()
            },
            "lost": self.lost.mean,
            "gained": self.gained.mean,
            "pays": self.pays,
            "validation": self.validation,
        }

    def summary(self) -> dict[str, Any]:
        """Returns what goes into JSON."""
        return {
            "name": self.name,
            "validation": self.validation,
            "test": self.test,
            "gain": self.gain.summary(),
            "added": self.added.summary(),
            "metrics": dict(self.metrics),
            "changes": {name: change.summary() for name, change in self.changes.items()},
            "negative_flips": self.lost.summary(),
            "positive_flips": self.gained.summary(),
            "verdict": self.verdict,
            "pays": self.pays,
        }


def make_candidates(
    metrics: Mapping[str, tuple[Metrics, Metrics]], groups: NDArray[Any], *, seed: int
) -> dict[str, Candidate]:
    """Returns a candidate for each way, by name.

    Args:
        metrics: Metrics of the validation queries and of the test queries, by the name of the way.
        groups: Group of each test query, which intervals resample.
        seed: Random seed of the intervals.
    """
    before, control = metrics[KEEP][1], metrics[CONTROL][1]

    def interval(values: NDArray[Any]) -> Interval:
        return paired_interval(values, groups, seed=seed)

    candidates = {}
    for name, (validation, test) in metrics.items():
        first_hits = test["recall_at_1"] - before["recall_at_1"]  # 1 gained, -1 lost
        candidates[name] = Candidate(
            name,
            float(np.nanmean(validation["map"])),
            {key: float(np.nanmean(values)) for key, values in test.items()},
            {key: interval(values - before[key]) for key, values in test.items()},
            interval(test["map"] - control["map"]),
            interval(np.maximum(-first_hits, 0)),
            interval(np.maximum(first_hits, 0)),
        )
    return candidates
