"""The classes that the old space cannot tell apart, and what became of each pair."""

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

NEIGHBORS = 5  # of each class, among which the most similar pairs are looked for


@dataclass(frozen=True)
class ConfusedPair:
    """Two classes that are much alike to the old model.

    A query is confused if something of the other class scores at least as high as the best of its
    own, where only these two classes are searched, and without what the query ignores.

    Attributes:
        one: The label of one class.
        other: The label of the other.
        queries: How many queries the two have together, of those that have something to find.
        old_cosine: Of the means of their gallery vectors in the old space.
        new_cosine: The same in the new space; None where the new gallery was not measured.
        old_old: The share of their queries that are confused today.
        new_old: The same on the day of the upgrade.
        new_new: The same after a whole backfill; None where that was not measured.
    """

    one: Any
    other: Any
    queries: int
    old_cosine: float
    new_cosine: float | None
    old_old: float
    new_old: float
    new_new: float | None


@dataclass(frozen=True, eq=False)
class _Duel:
    """Two classes, what they ask and what they are searched in.

    Attributes:
        classes: Their numbers.
        asking: The rows of their queries that have something to find.
        searched: The rows of their gallery items.
    """

    classes: tuple[int, int]
    asking: Int[Tensor, " query"]
    searched: Int[Tensor, " gallery"]


def confused_classes(evaluation: Evaluation, *, count: int = 20) -> list[ConfusedPair]:
    r"""The pairs of classes that are most alike in the old space, the most similar first.

    .. math::
        \cos(p_a, p_b), \quad a \in N_5(b) \;\text{or}\; b \in N_5(a); \qquad
        \text{query } i \text{ of } a \text{ is confused if} \;
        \max_{y_j = b} q_i^\top g_j \ge \max_{y_j = a} q_i^\top g_j

    with the means :math:`p_c` of the old gallery vectors of each class (of unit length, as all
    vectors here), the five classes :math:`N_5(c)` nearest to each, and without what the query
    ignores. Classes that no query has are left out, and pairs that no query can be counted for.

    Args:
        evaluation: As `evaluate` returns it, with labels.
        count: How many pairs to return, at most.
    """
    if count < 1:
        raise ConfigError(f"wanted at least one pair of classes, but count is {count}.")
    plan = evaluation.plan
    query_labels, gallery_labels = _labels(plan)
    counted = evaluation.old_old.num_relevant > 0
    classes = query_labels[torch.isin(query_labels, gallery_labels)].unique()
    means = _means(evaluation, "old_old", gallery_labels, classes)
    pairs = similar_pairs(means)
    has_queries = torch.isin(classes, query_labels[counted])
    pairs = pairs[has_queries[pairs].any(dim=1)][:count]
    duels = [
        _Duel(
            (a, b),
            (counted & ((query_labels == a) | (query_labels == b))).nonzero().flatten(),
            ((gallery_labels == a) | (gallery_labels == b)).nonzero().flatten(),
        )
        for a, b in classes[pairs].tolist()
    ]
    shares = {
        name: _shares(evaluation, name, duels)
        for name in ("old_old", "new_old", "new_new")
        if name in evaluation.pairs
    }
    old_cosines = row_cosines(means, pairs).tolist()
    new_cosines: list[float] | None = None
    if "new_new" in shares:
        new_means = _means(evaluation, "new_new", gallery_labels, classes)
        new_cosines = row_cosines(new_means, pairs).tolist()
    names = evaluation.query_columns["label"].tolist()
    name_of = dict(zip(query_labels.tolist(), names, strict=True))
    return [
        ConfusedPair(
            one=name_of[duel.classes[0]],
            other=name_of[duel.classes[1]],
            queries=len(duel.asking),
            old_cosine=old_cosines[row],
            new_cosine=new_cosines[row] if new_cosines else None,
            old_old=shares["old_old"][row],
            new_old=shares["new_old"][row],
            new_new=shares["new_new"][row] if "new_new" in shares else None,
        )
        for row, duel in enumerate(duels)
    ]


def similar_pairs(
    means: Float[Tensor, "classes dim"], *, block: int | None = None
) -> Int[Tensor, "pairs 2"]:
    """Each class with its five nearest, each pair once, the most similar first.

    The smaller row of a pair comes first. Equally similar pairs come in the order of their rows.

    Args:
        means: One row per class, of unit length.
        block: How many rows to compare at once; by default what fits into 64 MB.

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
    """The inner product of the two rows of each pair, in float64."""
    products = [
        (unit[one].double() * unit[other].double()).sum(dim=-1)
        for one, other in (
            part.to(unit.device).unbind(1)
            for part in pairs.split(rows_per_block(8 * unit.shape[1]))
        )
    ]
    return torch.cat(products).cpu() if products else torch.empty(0, dtype=torch.float64)


def is_confused(
    query: Float[Tensor, "query dim"],
    gallery: Float[Tensor, "gallery dim"],
    is_own: Bool[Tensor, "query gallery"],
    is_ignored: Bool[Tensor, "query gallery"],
) -> Bool[Tensor, " query"]:
    """Whether the best item of another class scores at least as high as the best of one's own.

    Cosines are computed in float64 and compared in float32, so that copies of one vector tie.

    Args:
        query: One row per query.
        gallery: One row per item.
        is_own: Which items are of the query's class.
        is_ignored: Which items do not count.

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


def _shares(evaluation: Evaluation, name: str, duels: list[_Duel]) -> list[float]:
    """The share of confused queries in each duel, under one pair of models."""
    plan = evaluation.plan
    query_labels, gallery_labels = _labels(plan)
    query, gallery = evaluation.vectors[name]
    shares = []
    for duel in duels:
        stored = gallery[duel.searched.to(gallery.device)]
        confused = 0
        for rows in duel.asking.split(rows_per_block(8 * len(duel.searched))):
            is_own = query_labels[rows, None] == gallery_labels[duel.searched]
            is_ignored = torch.stack(
                [plan.is_ignored(row, row + 1)[0, duel.searched] for row in rows.tolist()]
            )
            asking = query[rows.to(query.device)]
            confused += int(is_confused(asking, stored, is_own, is_ignored).sum())
        shares.append(confused / len(duel.asking))
    return shares


def _means(
    evaluation: Evaluation,
    name: str,
    gallery_labels: Int[Tensor, " gallery"],
    classes: Int[Tensor, " classes"],
) -> Float[Tensor, "classes dim"]:
    """The mean direction of each of some classes in the gallery of a pair of models."""
    _, gallery = evaluation.vectors[name]
    rows = torch.isin(gallery_labels, classes).nonzero().flatten()
    number = torch.searchsorted(classes, gallery_labels[rows])
    return class_means(gallery[rows.to(gallery.device)], number, len(classes))


def _labels(plan: SearchPlan) -> tuple[Int[Tensor, " query"], Int[Tensor, " gallery"]]:
    """The class of each query and of each gallery item."""
    if plan.query_labels is None or plan.gallery_labels is None:
        raise DataError(
            "wanted labels, to see which classes are confused, but what counts as found comes from "
            "lists. Evaluate with a column `label`, and without --ground-truth."
        )
    return plan.query_labels, plan.gallery_labels
