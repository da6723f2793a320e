"""How similar queries are to what they look for, and to strangers: does a threshold survive?"""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from nobackfill.evaluation.query_changes import Comparison, Threshold, passing, threshold_for

BINS = 80


@dataclass(frozen=True, eq=False)
class Similarities:
    r"""The cosines of one pair of models, counted.

    Attributes:
        pair: Query/gallery, such as "new_old".
        edges: Of the bins.
        same: How many query-gallery pairs of one class fall into each bin.
        different: The same of different classes.
        mean_same: The mean cosine within a class.
        mean_different: The mean cosine between classes.
        alignment: The mean squared distance within a class, :math:`2 - 2 \cos` (Wang and Isola).
        thresholds: For each share of strangers that may pass, where the threshold is.
        kept: What passes at the thresholds of old/old, if nobody moves them.
    """

    pair: str
    edges: NDArray[Any]
    same: NDArray[Any]
    different: NDArray[Any]
    mean_same: float
    mean_different: float
    alignment: float
    thresholds: tuple[Threshold, ...]
    kept: tuple[Threshold, ...]

    def summary(self) -> dict[str, Any]:
        """As it goes into JSON."""
        return {
            "edges": self.edges.tolist(),
            "same": self.same.tolist(),
            "different": self.different.tolist(),
            "mean_same": self.mean_same,
            "mean_different": self.mean_different,
            "alignment": self.alignment,
            "thresholds": [asdict(one) for one in self.thresholds],
            "at_old_thresholds": [asdict(one) for one in self.kept],
        }


def similarities(
    comparison: Comparison, false_accepts: tuple[float, ...] = (0.001, 0.01)
) -> list[Similarities]:
    """Counts the cosines of every pair of models, old/old first.

    Args:
        comparison: An evaluation, looked at query by query.
        false_accepts: Shares of strangers that may pass a threshold.
    """
    found: list[Similarities] = []
    old: tuple[Threshold, ...] = ()
    for pair in comparison.evaluation.pairs:
        same, different = comparison.cosines(pair)
        thresholds = tuple(threshold_for(pair, same, different, rate) for rate in false_accepts)
        old = old or thresholds
        edges = np.linspace(-1, 1, 2 * BINS + 1)
        found.append(
            Similarities(
                pair=pair,
                edges=edges,
                same=_counts(same, edges),
                different=_counts(different, edges),
                mean_same=same.double().mean().item(),
                mean_different=different.double().mean().item(),
                alignment=2 - 2 * same.double().mean().item(),
                thresholds=thresholds,
                kept=tuple(passing(pair, same, different, one.value) for one in old),
            )
        )
    return found


def _counts(values: Float[Tensor, " values"], edges: NDArray[Any]) -> NDArray[Any]:
    low, high = float(edges[0]), float(edges[-1])
    clamped = values.clamp(low, high).float()
    return torch.histc(clamped, len(edges) - 1, low, high).long().numpy()
