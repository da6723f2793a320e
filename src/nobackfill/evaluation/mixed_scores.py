"""Scores of queries on a gallery that is served in different ways, for example half-migrated."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor

from nobackfill.evaluation.gate import METRICS, WEIGHED
from nobackfill.evaluation.metrics import Retrieval
from nobackfill.evaluation.rank_metrics import average_precision, first_hit
from nobackfill.evaluation.relevance import lists_by_label
from nobackfill.evaluation.score_scale import Scale
from nobackfill.ops.nearest import rows_per_block
from nobackfill.ops.ranking import sorted_ranks

Rows = Int[Tensor, " block"]
Scores = Callable[[Rows], Float[Tensor, "block items"]]  # scores of queries (rows) on all items
Metrics = dict[str, Float[np.ndarray, " _"]]  # one value per query, by their key in JSON
ABOVE_COSINES = 2.0  # added to the scores of re-ranked items, to put them first
SAMPLE = 200  # queries that a scale is measured on


@dataclass(frozen=True, eq=False)
class Part:
    """Items of which some are queries."""

    new: Float[Tensor, "items new_dim"]  # new vectors, of unit length
    old: Float[Tensor, "items old_dim"]  # old vectors, of unit length
    classes: Int[Tensor, " items"]  # class of each item
    queries: Int[Tensor, " queries"]  # rows of the items that are queries
    is_gallery: Bool[Tensor, " items"]  # which items are searched

    @property
    def groups(self) -> NDArray[np.int64]:
        """Class of each query."""
        groups: NDArray[np.int64] = self.classes[self.queries].numpy()
        return groups

    def hide(self, scores: Float[Tensor, "block items"], rows: Rows) -> None:
        """Takes each query, and all items outside the gallery, out of the ranking, in place."""
        scores[torch.arange(len(rows)), rows] = -torch.inf
        if not self.is_gallery.all():
            scores[:, ~self.is_gallery] = -torch.inf


def make_part(
    new: Float[Tensor, "items new_dim"],
    old: Float[Tensor, "items old_dim"],
    classes: Int[Tensor, " items"],
    *,
    most: int,
    is_query: Bool[Tensor, " items"] | None = None,
    is_gallery: Bool[Tensor, " items"] | None = None,
) -> Part:
    """Makes a part with at most `most` queries, evenly chosen; by default all items may be."""
    everything = torch.ones(len(new), dtype=torch.bool)
    queries = (everything if is_query is None else is_query).nonzero().flatten()
    if len(queries) > most:
        queries = queries[torch.arange(most) * len(queries) // most]
    return Part(
        F.normalize(new, dim=1),
        F.normalize(old, dim=1),
        classes,
        queries,
        everything if is_gallery is None else is_gallery,
    )


def search(part: Part, scores: Scores) -> Retrieval:
    """Returns the results of the queries of a part; no query finds itself."""
    labels = part.classes.numpy()
    relevance = lists_by_label(labels[part.queries.numpy()], labels)
    ranks, counts, first = [], [], 0
    for rows in part.queries.split(rows_per_block(8 * len(part.old))):
        score = scores(rows)
        part.hide(score, rows)
        block = sorted_ranks(score, *relevance.pairs(first, first + len(rows)))
        ranks.append(block[0].cpu())
        counts.append(block[1].cpu())
        first += len(rows)
    rank, number = torch.cat(ranks), torch.cat(counts)
    num_ranked = part.is_gallery.sum() - part.is_gallery[part.queries].long()
    return Retrieval(
        average_precision(rank, number), first_hit(rank, number), number, rank, num_ranked
    )


def metrics_of_queries(part: Part, scores: Scores) -> Metrics:
    """Returns every weighed metric of each query; NaN where nothing is relevant."""
    results = search(part, scores)
    nothing = (results.num_relevant == 0).numpy()
    return {
        name: np.where(nothing, np.nan, METRICS[name](results).double().numpy()) for name in WEIGHED
    }


def on_old(part: Part, query: Float[Tensor, "items old_dim"]) -> Scores:
    """Returns the scores of any queries on the old vectors."""
    return lambda rows: query[rows] @ part.old.T


def on_new(part: Part) -> Scores:
    """Returns the scores of new queries after a full backfill."""
    return lambda rows: part.new[rows] @ part.new.T


def headroom(part: Part) -> Scores:
    r"""Returns the scores of ideal queries: the mean of the *old* vectors of the relevant items.

    .. math::
        q_i \propto \sum_{j \ne i,\; y_j = y_i} o_j

    No model is involved: this is about the most that any query can find in the old vectors.
    """
    number = int(part.classes.max()) + 1
    searched = part.old * part.is_gallery[:, None]
    total = torch.zeros(number, part.old.shape[1]).index_add(0, part.classes, searched)
    return on_old(part, F.normalize(total[part.classes] - searched, dim=1))


def two_stage(part: Part, query: Float[Tensor, "items old_dim"], k: int) -> Scores:
    """Returns scores on the old vectors, with the best `k` items re-ranked by new vectors."""

    def scores(rows: Rows) -> Float[Tensor, "block items"]:
        first = query[rows] @ part.old.T
        part.hide(first, rows)
        best = first.topk(min(k, first.shape[1]), dim=1).indices
        again = (part.new[rows] @ part.new.T).gather(1, best)
        return first.scatter(1, best, ABOVE_COSINES + again)

    return scores


def scale_of(part: Part, scores: Scores) -> Scale:
    """Returns the scale of the scores of a sample of queries."""
    rows = every_so_many(part.queries)
    gallery = part.is_gallery
    return unrelated_scale(scores(rows)[:, gallery], part.classes[rows], part.classes[gallery])


def every_so_many(queries: Int[Tensor, " queries"]) -> Int[Tensor, " sample"]:
    """Returns about `SAMPLE` of the queries, evenly chosen."""
    return queries[:: max(1, len(queries) // SAMPLE)]


def unrelated_scale(
    scores: Float[Tensor, "block items"],
    query_labels: Int[Tensor, " block"],
    gallery_labels: Int[Tensor, " items"],
) -> Scale:
    """Returns the scale of the scores between queries and items of other classes."""
    return Scale.of(scores.cpu()[query_labels[:, None] != gallery_labels[None]])


def half_done(
    part: Part,
    query: Float[Tensor, "items old_dim"],
    is_new: Bool[Tensor, " items"],
    scales: tuple[Scale, Scale],
) -> Scores:
    """Returns scores on a half-migrated gallery: new queries on new vectors, `query` on old ones.

    Items that are new have been embedded again; scales are those of old and of new vectors.
    """
    old, new = on_old(part, query), on_new(part)
    return lambda rows: mixed(old(rows), new(rows), is_new, scales)


def mixed(
    on_old: Float[Tensor, "block items"],
    on_new: Float[Tensor, "block items"],
    is_new: Bool[Tensor, " items"],
    scales: tuple[Scale, Scale] | None,
) -> Float[Tensor, "block items"]:
    r"""Returns the scores on a half-migrated gallery; unchanged if all its vectors are of one kind.

    .. math::
        s_{qj} = \begin{cases} (s'_{qj} - \mu') / \sigma' & j \text{ is new} \\
        (s_{qj} - \mu) / \sigma & \text{else} \end{cases}

    Without `scales`, both kinds of vectors are in one space, and scores are compared as they are.
    """
    if not is_new.any():
        return on_old
    if is_new.all():
        return on_new
    if scales is not None:
        on_old, on_new = scales[0](on_old), scales[1](on_new)
    return torch.where(is_new, on_new, on_old)
