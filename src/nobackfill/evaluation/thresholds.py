"""Cosines of related and unrelated pairs, and whether thresholds survive the upgrade."""

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
    """Histograms of the cosines of a pair of models, and thresholds."""

    pair: str  # pair of models (query/gallery), such as "new_old"
    edges: NDArray[Any]  # edges of the bins
    same: NDArray[Any]  # number of query-gallery pairs of one class in each bin
    different: NDArray[Any]  # number of pairs of different classes in each bin
    mean_same: float  # mean cosine within a class
    mean_different: float  # mean cosine between classes
    alignment: float  # mean squared distance within a class: 2 - 2 cos (Wang and Isola)
    thresholds: tuple[Threshold, ...]  # threshold for each rate of false accepts
    kept: tuple[Threshold, ...]  # rates at the unchanged thresholds of old/old

    def summary(self) -> dict[str, Any]:
        """Returns the numbers for JSON."""
        return {
            "edges": self.edges.tolist(),
            "same": self.same.tolist(),
            "different": self.different.tolist(),
            "mean_same": self.mean_same,
            "mean_different": self.mean_different,
            "alignment": self.alignment,
            "thresholds": [asdict(threshold) for threshold in self.thresholds],
            "at_old_thresholds": [asdict(threshold) for threshold in self.kept],
        }


def similarities(
    comparison: Comparison, false_accepts: tuple[float, ...] = (0.001, 0.01)
) -> list[Similarities]:
    """Returns histograms and thresholds of every pair of models, old/old first.

    False accepts are shares of the pairs of different classes.
    """
    results: list[Similarities] = []
    old: tuple[Threshold, ...] = ()
    for pair in comparison.evaluation.pairs:
        same, different = comparison.cosines(pair)
        thresholds = tuple(threshold_for(pair, same, different, rate) for rate in false_accepts)
        old = old or thresholds
        edges = np.linspace(-1, 1, 2 * BINS + 1)
        results.append(
            Similarities(
                pair=pair,
                edges=edges,
                same=_counts(same, edges),
                different=_counts(different, edges),
                mean_same=same.double().mean().item(),
                mean_different=different.double().mean().item(),
                alignment=2 - 2 * same.double().mean().item(),
                thresholds=thresholds,
                kept=tuple(passing(pair, same, different, before.value) for before in old),
            )
        )
    return results


def _counts(values: Float[Tensor, " values"], edges: NDArray[Any]) -> NDArray[Any]:
    low, high = float(edges[0]), float(edges[-1])
    clamped = values.clamp(low, high).float()
    return torch.histc(clamped, len(edges) - 1, low, high).long().numpy()
