"""Mean average precision from vectors by other libraries and by plain code."""

import importlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

ROWS = 64  # queries in a chunk
ToMap = Callable[[Tensor, Tensor, Tensor, Tensor], float]  # query, gallery and their labels in


def torchmetrics(
    query: Tensor, gallery: Tensor, query_labels: Tensor, gallery_labels: Tensor
) -> float:
    """Uses its functional form, query by query; it drops scores <= 0, so they are shifted."""
    average_precision = importlib.import_module(
        "torchmetrics.functional.retrieval"
    ).retrieval_average_precision
    values = []
    for first in range(0, len(query), ROWS):
        score = (query[first : first + ROWS] @ gallery.T).add_(1).div_(2)
        for row, label in zip(score, query_labels[first : first + ROWS], strict=True):
            values.append(average_precision(row, gallery_labels == label))
    return torch.stack(values).double().mean().item()


def pytorch_metric_learning(
    query: Tensor, gallery: Tensor, query_labels: Tensor, gallery_labels: Tensor
) -> float:
    """Uses its AccuracyCalculator with faiss; the whole gallery counts as neighbours."""
    faiss = importlib.import_module("faiss")
    utils = "pytorch_metric_learning.utils"
    calculators = importlib.import_module(f"{utils}.accuracy_calculator")
    faiss.omp_set_num_threads(torch.get_num_threads())
    knn = importlib.import_module(f"{utils}.inference").FaissKNN(
        index_init_fn=faiss.IndexFlatIP, reset_before=True
    )
    calculator = calculators.AccuracyCalculator(
        include=("mean_average_precision",), k=None, device=torch.device("cpu"), knn_func=knn
    )
    accuracy = calculator.get_accuracy(query, query_labels, gallery, gallery_labels, False)
    return float(accuracy["mean_average_precision"])


def scikit_learn(
    query: Tensor, gallery: Tensor, query_labels: Tensor, gallery_labels: Tensor
) -> float:
    """Uses its average_precision_score, query by query; also the reference for the values."""
    average_precision = importlib.import_module("sklearn.metrics").average_precision_score
    values = []
    for first in range(0, len(query), ROWS):
        score = (query[first : first + ROWS] @ gallery.T).numpy()
        for row, label in zip(score, query_labels[first : first + ROWS], strict=True):
            values.append(average_precision((gallery_labels == label).numpy(), row))
    return float(np.mean(values))


def numpy_argsort(
    query: Tensor, gallery: Tensor, query_labels: Tensor, gallery_labels: Tensor
) -> float:
    """Sorts each chunk of scores and finds the ranks of the hits."""
    values = []
    labels = gallery_labels.numpy()
    for first in range(0, len(query), ROWS):
        score = (query[first : first + ROWS] @ gallery.T).numpy()
        order = np.argsort(-score, axis=1)
        for ranking, label in zip(order, query_labels[first : first + ROWS].numpy(), strict=True):
            ranks = np.flatnonzero(labels[ranking] == label) + 1
            values.append((np.arange(1, len(ranks) + 1) / ranks).mean())
    return float(np.mean(values))


def torch_argsort(
    query: Tensor, gallery: Tensor, query_labels: Tensor, gallery_labels: Tensor
) -> float:
    """Does the same in torch, with a cumulative sum of hits."""
    values = []
    rank = torch.arange(1, len(gallery) + 1)
    for first in range(0, len(query), ROWS):
        order = (query[first : first + ROWS] @ gallery.T).argsort(dim=1, descending=True)
        hit = gallery_labels[order] == query_labels[first : first + ROWS, None]
        precision = hit.cumsum(dim=1) / rank
        values.append((hit * precision).sum(dim=1).double() / hit.sum(dim=1))
    return torch.cat(values).mean().item()


@dataclass(frozen=True)
class Peer:
    """Another implementation of the mAP.

    Attributes:
        function: Function from vectors and labels to the mAP.
        target: Target of its time divided by ours.
        requires: Required modules.
        room: Bytes that it holds for each pair of query and gallery item, if it holds all pairs.
    """

    function: ToMap
    target: float
    requires: tuple[str, ...] = ()
    room: int = 0


LIBRARY, BY_HAND = 10.0, 5.0
PEERS: dict[str, Peer] = {
    "torchmetrics": Peer(torchmetrics, LIBRARY, ("torchmetrics",)),
    "scikit-learn": Peer(scikit_learn, LIBRARY, ("sklearn",)),
    "pytorch-metric-learning": Peer(
        pytorch_metric_learning, LIBRARY, ("pytorch_metric_learning", "faiss"), room=70
    ),
    "numpy argsort": Peer(numpy_argsort, BY_HAND),
    "torch argsort": Peer(torch_argsort, BY_HAND),
}
