"""Makes scores of two spaces comparable: in deviations from the scores of unrelated pairs."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Scale:
    """Mean and standard deviation of the scores of queries and items of other classes.

    It needs no torch: scores are numbers, arrays or tensors.

    Example:
        >>> Scale(0.5, 0.25)(1.0), Scale()(0.3)
        (2.0, 0.3)
    """

    mean: float = 0.0  # mean of these scores
    deviation: float = 1.0  # standard deviation of these scores

    @classmethod
    def of(cls, scores: Any) -> "Scale":
        """Returns the scale of an array or a tensor of scores."""
        return cls(float(scores.mean()), max(float(scores.std()), 1e-9))

    def __call__(self, scores: Any) -> Any:
        """Returns the scores in standard deviations from the mean."""
        return (scores - self.mean) / self.deviation
