"""Pairs of classes that the old space confuses, and how often each model confuses them."""

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from nobackfill.errors import ConfigError, DataError
from nobackfill.evaluation.result import Evaluation
from nobackfill.evaluation.search_plan import SearchPlan
from nobackfill.methods.prototypes import class_means
from nobackfill.ops.nearest import nearest, rows_per_block

NEIGHBORS = 5  # nearest classes that a class is compared with


@dataclass(frozen=True)
class ConfusedPair:
    """Two classes that are similar in the old space.

    A query is confused if an item of the other class scores at least as high as the best of its
    own, among the items of these two classes that it does not ignore.
    """

    one: Any  # label of the first class
    other: Any  # label of the second class
    queries: int  # number of queries of both classes that have a relevant item
    old_cosine: float  # cosine of the class means of the old gallery
    # cosine of the class means of the new gallery; None if it was not measured
    new_cosine: float | None
    old_old: float  # share of the queries that the old model confuses
    new_old: float  # share that new queries confuse on the old gallery
    new_new: float | None  # share after a full backfill; None if it was not measured


@dataclass(frozen=True, eq=False)
class _ClassPair:
    """Numbers of two classes, and the rows of their counted queries and gallery items."""

    classes: tuple[int, int]
    queries: Int[Tensor, " query"]
    gallery: Int[Tensor, " gallery"]


def confused_classes(evaluation: Evaluation, *, count: int = 20) -> list[ConfusedPair]:
    r"""Returns the pairs of classes that are most similar in the old space, the most similar first.

    .. math::
        \cos(p_a, p_b), \quad a \in N_5(b) \;\text{or}\; b \in N_5(a); \qquad
        \text{query } i \text{ of } a \text{ is confused if} \;
        \max_{y_j = b} q_i^\top g_j \ge \max_{y_j = a} q_i^\top g_j

    with the means :math:`p_c` of the old gallery vectors of each class (all vectors have unit
    length), the five nearest classes :math:`N_5(c)`, and without ignored items. Classes and pairs
    without queries are left out.
    """
    if count < 1:
        raise ConfigError(f"the number of pairs must be 1 or more, but count is {count}.")
    # choose the most similar classes
    query_labels, gallery_labels = _labels(evaluation.plan)
    counted = evaluation.old_old.num_relevant > 0
    classes = query_labels[torch.isin(query_labels, gallery_labels)].unique()
    means = _means(evaluation, "old_old", classes)
    rows = similar_pairs(means)
    has_queries = torch.isin(classes, query_labels[counted])
    rows = rows[has_queries[rows].any(dim=1)][:count]
    pairs = [
        _ClassPair(
            (a, b),
            (counted & ((query_labels == a) | (query_labels == b))).nonzero().flatten(),
            ((gallery_labels == a) | (gallery_labels == b)).nonzero().flatten(),
        )
        for a, b in classes[rows].tolist()
    ]
    # measure them under each pair of models
    shares = {
        name: _shares(evaluation, name, pairs)
        for name in ("old_old", "new_old", "new_new")
        if name in evaluation.pairs
    }
    old_cosines: list[float] = row_cosines(means, rows).tolist()
    new_cosines: list[float | None] = [None] * len(pairs)
    if "new_new" in shares:
        new_cosines = row_cosines(_means(evaluation, "new_new", classes), rows).tolist()
    names = evaluation.query_columns["label"].tolist()
    name_of = dict(zip(query_labels.tolist(), names, strict=True))
    return [
        ConfusedPair(
            one=name_of[pair.classes[0]],
            other=name_of[pair.classes[1]],
            queries=len(pair.queries),
            old_cosine=old_cosines[row],
            new_cosine=new_cosines[row],
            old_old=shares["old_old"][row],
            new_old=shares["new_old"][row],
            new_new=shares["new_new"][row] if "new_new" in shares else None,
        )
        for row, pair in enumerate(pairs)
    ]


def similar_pairs(
    means: Float[Tensor, "classes dim"], *, block: int | None = None
) -> Int[Tensor, "pairs 2"]:
    """Returns each class with its five nearest, each pair once, the most similar first.

    The smaller row of a pair comes first. Equally similar pairs are in the order of their rows.

    Example:
        >>> similar_pairs(torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]])).tolist()
        [[1, 2], [0, 2], [0, 1]]
    """
    near, _ = nearest(means, means, NEIGHBORS, exclude_self=True, block=block)
    row = torch.arange(len(means), device=near.device)[:, None].expand_as(near)
    both = torch.stack([row, near], dim=-1).reshape(-1, 2).cpu()
    pairs: Tensor = both.sort(dim=1).values.unique(dim=0)
    order = row_cosines(means, pairs).argsort(descending=True, stable=True)
    return pairs[order]


def row_cosines(
    unit: Float[Tensor, "rows dim"], pairs: Int[Tensor, "pairs 2"]
) -> Float[Tensor, " pairs"]:
    """Returns the inner product of the two rows of each pair, in float64."""
    products = [
        (unit[part[:, 0]].double() * unit[part[:, 1]].double()).sum(dim=-1)
        for part in pairs.to(unit.device).split(rows_per_block(8 * unit.shape[1]))
    ]
    return torch.cat(products).cpu()


def is_confused(
    query: Float[Tensor, "query dim"],
    gallery: Float[Tensor, "gallery dim"],
    is_own: Bool[Tensor, "query gallery"],
    is_ignored: Bool[Tensor, "query gallery"],
) -> Bool[Tensor, " query"]:
    """Whether the best item of another class scores at least as high as the best of the own class.

    Cosines are computed in float64 and compared in float32, so that copies of a vector tie.

    Example:
        >>> query, gallery = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.6, 0.8], [0.6, -0.8]])
        >>> is_confused(query, gallery, torch.tensor([[True, False]]), torch.zeros(1, 2).bool())
        tensor([True])
    """
    unit, stored = (F.normalize(side.double(), dim=-1) for side in (query, gallery))
    cosine = (unit @ stored.T).float().cpu().masked_fill(is_ignored, -torch.inf)
    own = cosine.masked_fill(~is_own, -torch.inf).amax(dim=1)
    other = cosine.masked_fill(is_own, -torch.inf).amax(dim=1)
    return other >= own


def _shares(evaluation: Evaluation, name: str, pairs: list[_ClassPair]) -> list[float]:
    """Returns the share of confused queries of each pair of classes, under one pair of models."""
    plan = evaluation.plan
    query_labels, gallery_labels = _labels(plan)
    query, gallery = evaluation.vectors[name]
    shares = []
    for pair in pairs:
        stored = gallery[pair.gallery.to(gallery.device)]
        confused = 0
        for rows in pair.queries.split(rows_per_block(8 * len(pair.gallery))):
            is_own = query_labels[rows, None] == gallery_labels[pair.gallery]
            ignored = [plan.is_ignored(row)[:, pair.gallery] for row in rows.split(1)]
            confused += int(
                is_confused(query[rows.to(query.device)], stored, is_own, torch.cat(ignored)).sum()
            )
        shares.append(confused / len(pair.queries))
    return shares


def _means(
    evaluation: Evaluation, name: str, classes: Int[Tensor, " classes"]
) -> Float[Tensor, "classes dim"]:
    """Returns the mean directions of classes in the gallery of a pair of models."""
    _, gallery = evaluation.vectors[name]
    _, labels = _labels(evaluation.plan)
    rows = torch.isin(labels, classes).nonzero().flatten()
    number = torch.searchsorted(classes, labels[rows])
    return class_means(gallery[rows.to(gallery.device)], number, len(classes))


def _labels(plan: SearchPlan) -> tuple[Int[Tensor, " query"], Int[Tensor, " gallery"]]:
    """Returns the class of each query and of each gallery item."""
    if plan.query_labels is None or plan.gallery_labels is None:
        raise DataError(
            "confused classes need labels, but the relevant items come from lists. Evaluate with a "
            "column `label`, and without --pairs."
        )
    return plan.query_labels, plan.gallery_labels
