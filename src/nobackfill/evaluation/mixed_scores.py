"""Ways to serve an upgrade, as scores of queries on a gallery: what each would come to."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor

from nobackfill.evaluation.metrics import average_precision
from nobackfill.evaluation.relevance import lists_by_label
from nobackfill.ops.nearest import rows_per_block
from nobackfill.ops.ranking import sorted_ranks

Rows = Int[Tensor, " block"]
Scores = Callable[[Rows], Float[Tensor, "block items"]]  # of some items on all of them
BACKFILLED = 2.0  # more than any cosine: what was looked at again stands first


@dataclass(frozen=True, eq=False)
class Part:
    """Items of some classes, each of which asks for the others.

    Attributes:
        new: Their new vectors, of unit length.
        old: Their old vectors, of unit length.
        classes: Their classes.
        queries: Which of them ask.
    """

    new: Float[Tensor, "items new_dim"]
    old: Float[Tensor, "items old_dim"]
    classes: Int[Tensor, " items"]
    queries: Int[Tensor, " queries"]

    @property
    def groups(self) -> NDArray[np.int64]:
        """The class of each query."""
        found: NDArray[np.int64] = self.classes[self.queries].numpy()
        return found


def make_part(
    new: Float[Tensor, "items new_dim"],
    old: Float[Tensor, "items old_dim"],
    classes: Int[Tensor, " items"],
    *,
    most: int,
) -> Part:
    """Items that ask for each other; of more than `most`, evenly chosen ones do."""
    queries = torch.arange(len(new))
    if len(new) > most:
        queries = torch.arange(most) * len(new) // most
    return Part(F.normalize(new, dim=1), F.normalize(old, dim=1), classes, queries)


def precision_of(part: Part, scores: Scores) -> Float[np.ndarray, " queries"]:
    """The average precision of each query, itself left out; NaN where it has nothing to find."""
    labels = part.classes.numpy()
    relevance = lists_by_label(labels[part.queries.numpy()], labels)
    found, first = [], 0
    for rows in part.queries.split(rows_per_block(8 * len(part.old))):
        score = scores(rows)
        score[torch.arange(len(rows)), rows] = -torch.inf
        ranks, number = sorted_ranks(score, *relevance.pairs(first, first + len(rows)))
        found.append(average_precision(ranks.cpu(), number.cpu()))
        first += len(rows)
    return torch.cat(found).numpy()


def on_old(part: Part, query: Float[Tensor, "items old_dim"]) -> Scores:
    """Queries, whoever made them, on the stored vectors."""
    return lambda rows: query[rows] @ part.old.T


def on_new(part: Part) -> Scores:
    """New queries after every item has been embedded again."""
    return lambda rows: part.new[rows] @ part.new.T


def headroom(part: Part) -> Scores:
    r"""Each query is the mean of the *old* vectors of what it looks for.

    .. math::
        q_i \propto \sum_{j \ne i,\; y_j = y_i} o_j

    No model is asked: about this much could the best of queries find in the stored vectors.
    """
    number = int(part.classes.max()) + 1
    total = torch.zeros(number, part.old.shape[1]).index_add(0, part.classes, part.old)
    query = F.normalize(total[part.classes] - part.old, dim=1)
    return lambda rows: query[rows] @ part.old.T


def two_stage(part: Part, query: Float[Tensor, "items old_dim"], k: int) -> Scores:
    """The best `k` of the stored vectors, put in order by the new vectors of just these items."""

    def scores(rows: Rows) -> Float[Tensor, "block items"]:
        first = query[rows] @ part.old.T
        first[torch.arange(len(rows)), rows] = -torch.inf
        best = first.topk(min(k, first.shape[1]), dim=1).indices
        again = (part.new[rows] @ part.new.T).gather(1, best)
        return first.scatter(1, best, BACKFILLED + again)

    return scores


@dataclass(frozen=True)
class Scale:
    """Where the scores of strangers lie: makes two kinds of scores mean the same.

    Attributes:
        mean: Their mean.
        deviation: Their standard deviation.
    """

    mean: float
    deviation: float

    def __call__(self, scores: Float[Tensor, "block items"]) -> Float[Tensor, "block items"]:
        """Scores in deviations from a stranger's."""
        return (scores - self.mean) / self.deviation


def scale_of(part: Part, scores: Scores) -> Scale:
    """The scale of some queries' scores on items of other classes."""
    rows = part.queries[:: max(1, len(part.queries) // 200)]
    found = scores(rows)
    strangers = found[part.classes[rows][:, None] != part.classes[None]]
    return Scale(strangers.mean().item(), max(strangers.std().item(), 1e-9))


def half_done(
    part: Part,
    query: Float[Tensor, "items old_dim"],
    is_new: Bool[Tensor, " items"],
    scales: tuple[Scale, Scale],
) -> Scores:
    """A part of the gallery embedded again: new queries there, mapped ones on the rest.

    Args:
        part: Who asks and is searched.
        query: The queries to the old vectors.
        is_new: Which items have been embedded again.
        scales: Of scores on old vectors, and on new ones.
    """
    old_scale, new_scale = scales

    def scores(rows: Rows) -> Float[Tensor, "block items"]:
        on_stored = old_scale(query[rows] @ part.old.T)
        return torch.where(is_new, new_scale(part.new[rows] @ part.new.T), on_stored)

    return scores
