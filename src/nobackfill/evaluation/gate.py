"""Decides whether an upgrade may go live, from the changes of several metrics."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from nobackfill.core.suggest import suggest
from nobackfill.errors import ConfigError
from nobackfill.evaluation.bootstrap import Interval
from nobackfill.evaluation.metrics import Retrieval
from nobackfill.evaluation.rank_metrics import ndcg
from nobackfill.evaluation.verdict import Verdict

# One value per query, by the metric's key in JSON; queries without a relevant item do not count.
METRICS: dict[str, Callable[[Retrieval], Float[Tensor, " query"]]] = {
    "map": lambda result: result.average_precision,
    "recall_at_1": lambda result: result.found_by(1).double(),
    "recall_at_5": lambda result: result.found_by(5).double(),
    "recall_at_10": lambda result: result.found_by(10).double(),
    "ndcg_at_10": lambda result: ndcg(result.ranks, result.num_relevant, at=10),
}
WEIGHED = ("map", "recall_at_1", "ndcg_at_10")


@dataclass(frozen=True)
class Gate:
    """Requirements on new/old for the verdict "compatible".

    Attributes:
        metrics: Metrics that may not fall; the first one must rise.
        min_gain: Gain of the first metric that must be exceeded, as a fraction.
        max_negative_flips: Largest share of queries that may lose their first hit; None for any.
    """

    metrics: tuple[str, ...] = WEIGHED
    min_gain: float = 0.0
    max_negative_flips: float | None = None

    def __post_init__(self) -> None:
        """Raises ConfigError for unknown metrics and impossible limits."""
        if not self.metrics:
            raise ConfigError("A verdict needs at least one metric. Pass one, such as `map`.")
        for name in self.metrics:
            if name not in METRICS:
                raise ConfigError(f"unknown metric `{name}`. {suggest(name, METRICS)}")
        if not 0 <= self.min_gain < 1:
            raise ConfigError(f"The minimum gain must be from 0 to below 1, not {self.min_gain}.")
        if self.max_negative_flips is not None and not 0 <= self.max_negative_flips <= 1:
            raise ConfigError(
                f"The maximum of negative flips must be a share from 0 to 1, not "
                f"{self.max_negative_flips}."
            )

    def decide(self, changes: Mapping[str, Interval], negative_flips: Interval) -> Verdict:
        """Decides from the intervals of all changes.

        A metric rises or falls if its interval does not contain 0. "mixed" if one rises and
        another falls, "not compatible" if one falls and none rises or a limit is exceeded,
        "compatible" if the first rises by more than the minimum and every limit is kept, and
        "undecided" in all other cases.

        Args:
            changes: Change of each metric of the gate from old/old to new/old.
            negative_flips: Share of queries that lose their first hit.
        """
        first = changes[self.metrics[0]]
        rises = any(changes[name].low > 0 for name in self.metrics)
        falls = any(changes[name].high < 0 for name in self.metrics)
        limit = 1.0 if self.max_negative_flips is None else self.max_negative_flips
        if rises and falls:
            return "mixed"
        if falls or first.high < self.min_gain or negative_flips.low > limit:
            return "not compatible"
        is_enough = first.low > self.min_gain
        return "compatible" if is_enough and negative_flips.high <= limit else "undecided"


def change_of(metric: str, before: Retrieval, after: Retrieval) -> Float[np.ndarray, " query"]:
    """Returns the change of a metric for each query; NaN for queries without a relevant item."""
    change = METRICS[metric](after) - METRICS[metric](before)
    return torch.where(before.num_relevant > 0, change, torch.nan).numpy()


def lost_first_hits(before: Retrieval, after: Retrieval) -> Float[np.ndarray, " query"]:
    """1 for each query that loses its first hit, else 0; NaN without a relevant item."""
    lost = (before.found_by(1) & ~after.found_by(1)).double()
    return torch.where(before.num_relevant > 0, lost, torch.nan).numpy()
