"""Checks that vectors belong to the items whose ids they have.

A result that rests on shifted rows, swapped files or constant vectors says nothing about a model,
so each of these findings leaves the verdict undecided.
"""

from collections.abc import Iterator

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from nobackfill.evaluation.file_columns import rows_of
from nobackfill.evaluation.search_plan import SearchPlan
from nobackfill.evaluation.swapped import swap_notes
from nobackfill.ops.nearest import nearest
from nobackfill.vectors import Vectors
from nobackfill.vectors.ids import Ids, is_in, rows_of_ids

SAMPLE = 1_000  # number of queries that are checked
BLOCK = 65_536  # rows of the gallery at a time
SAME = 1e-3  # largest distance of two unit vectors that float16 rounded from the same vector
FOREIGN = 0.02  # share of queries that may have the vector of another item
SHIFT = 3  # rows above and below that a query is compared with
FEWEST = 20  # queries that a comparison needs
CERTAIN = 6.0  # standard errors of a finding
CONSTANT = 1e-6  # largest spread of vectors that are all the same


def identity_doubts(
    old: Vectors, new: Vectors, plan: SearchPlan, device: torch.device | str = "cpu"
) -> list[str]:
    """Returns reasons to doubt that the rows of two files belong to their items, as sentences.

    Args:
        old: Vectors of the old model.
        new: Queries of the new model for the old gallery.
        plan: Queries and gallery of the search.
        device: Device of the comparisons.
    """
    old_rows = rows_of(old, plan.query_ids).to(device)
    new_rows = rows_of(new, plan.query_ids)[:, : old.dim].to(device)
    gallery = rows_of(old, plan.gallery_ids).to(device)
    # draw samples of queries and of the gallery
    step = max(1, len(plan.query_ids) // SAMPLE)
    ids = plan.query_ids[::step][:SAMPLE]
    old_queries, new_queries = (unit(rows[::step][:SAMPLE]) for rows in (old_rows, new_rows))
    items = unit(gallery[:: max(1, len(gallery) // SAMPLE)])
    row = nearest_rows(new_queries, gallery)
    best = unit(gallery[row]), plan.gallery_ids[row.cpu().numpy()]
    # check whether vectors are those of other items
    doubts = [*foreign_vectors(old_queries, new_queries, ids, *best)]
    doubts = doubts or shifted(old, ids, new_queries) or exchanged(old_rows, new_rows)
    return [
        *swap_notes(old, new),
        *constant({"old queries": old_queries, "new queries": new_queries, "gallery": items}),
        *doubts,
        *repeated(old_rows, new_rows),
        *tied(gallery, plan.gallery_labels),
    ]


def unit(rows: Float[Tensor, "rows dim"]) -> Float[Tensor, "rows dim"]:
    """Returns the rows at unit length, in float32."""
    return F.normalize(rows.float(), dim=1)


def constant(vectors: dict[str, Float[Tensor, "rows dim"]]) -> Iterator[str]:
    r"""Yields a doubt for each set of vectors that are all the same.

    .. math::
        \mathrm{spread} = 1 - \Big\lVert \frac1n \sum_i v_i \Big\rVert
    """
    for name, rows in vectors.items():
        if len(rows) > 1 and 1 - float(rows.mean(dim=0).norm()) < CONSTANT:
            yield f"the vectors of the {name} are all the same"


def foreign_vectors(
    old: Float[Tensor, "query dim"],
    new: Float[Tensor, "query dim"],
    query_ids: Ids,
    best: Float[Tensor, "query dim"],
    best_ids: Ids,
) -> Iterator[str]:
    """Yields a doubt if new queries are the old vectors of other items than their own.

    Such a query finds its own vector under another id.

    Args:
        old: Old vector of each query.
        new: New vector of each query.
        query_ids: Id of each query.
        best: Vector of the gallery item that is nearest to the new vector.
        best_ids: Id of that item.
    """
    is_own = (new - old).norm(dim=1) < SAME
    is_foreign = ((new - best).norm(dim=1) < SAME) & ~is_own
    is_foreign &= torch.from_numpy(best_ids != query_ids).to(is_foreign.device)
    if (number := int(is_foreign.sum())) > FOREIGN * len(new):
        first = int(is_foreign.nonzero()[0])
        yield (
            f"{number:,} of {len(new):,} new queries are the old vectors of other items: "
            f"{query_ids[first].item()!r} has the vector of {best_ids[first].item()!r}. Rows are "
            f"shifted, or ids are mixed up"
        )


def nearest_rows(
    queries: Float[Tensor, "query dim"], gallery: Float[Tensor, "gallery dim"]
) -> Int[Tensor, " query"]:
    """Returns the row of the gallery item with the highest cosine to each query."""
    return nearest(unit(queries), unit(gallery), k=1)[0].squeeze(1)


def exchanged(old: Float[Tensor, "query dim"], new: Float[Tensor, "query dim"]) -> list[str]:
    r"""Returns a doubt if most new queries and old vectors of *other* items are mutually nearest.

    If new queries say nothing about single items, a query and the old vector that is nearest to
    it are each other's nearest for about half of the queries,

    .. math::
        \frac{n}{2n - 1},

    and if they say something, these are mostly their own old vectors.
    """
    step = max(1, len(new) // SAMPLE)
    rows = torch.arange(0, len(new), step, device=new.device)[:SAMPLE]
    other = nearest_rows(new[rows], old)
    is_mutual = nearest_rows(old[other], new) == rows
    number = int((is_mutual & (other != rows)).sum())
    if number <= len(rows) / 2 + CERTAIN * len(rows) ** 0.5 / 2:
        return []
    return [
        f"{number:,} of {len(rows):,} new queries fit the old vectors of other items best, and "
        f"those fit them best: ids are mixed up"
    ]


def repeated(old: Float[Tensor, "query dim"], new: Float[Tensor, "query dim"]) -> Iterator[str]:
    """Yields a doubt if most new queries have the vector of another query, unlike the old ones.

    Vectors that were made from labels are such: one for each class.
    """
    pairs = neighbours(new)
    number = int((are_equal(new, pairs) & ~are_equal(old, pairs)).sum())
    if 2 * number > len(new) >= FEWEST:
        yield (
            "most new queries have the vector of another query, and their old vectors differ: "
            "they may be made from the labels"
        )


def tied(
    gallery: Float[Tensor, "gallery dim"], labels: Int[Tensor, " gallery"] | None
) -> Iterator[str]:
    """Yields a doubt if most gallery items have the old vector of another item (class, if known).

    A ranking lists them in the order of the file, which any noise in new queries changes.
    """
    pairs = neighbours(gallery)
    own = torch.arange(len(gallery)) if labels is None else labels
    own = own.to(gallery.device)
    # number the distinct vectors, and compare the labels of the items that have each of them
    order = torch.cat([pairs[:1, 0], pairs[:, 1]])
    vector = torch.cat([order[:1] * 0, (~are_equal(gallery, pairs)).cumsum(0)])
    lowest, highest = (
        torch.zeros_like(own).scatter_reduce(0, vector, own[order], reduce, include_self=False)
        for reduce in ("amin", "amax")
    )
    is_tied = (lowest != highest)[vector]
    if 2 * int(is_tied.sum()) > len(gallery) >= FEWEST:
        yield (
            "most gallery items have the old vector of another item, so old rankings are in the "
            "order of the file"
        )


def neighbours(rows: Float[Tensor, "rows dim"]) -> Int[Tensor, "pairs 2"]:
    """Returns adjacent rows in the order of a projection, among them all of equal direction."""
    direction = torch.randn(rows.shape[1], generator=torch.Generator().manual_seed(0))
    direction = direction.to(rows.device)
    places = torch.cat([unit(block) @ direction for block in rows.split(BLOCK)])
    order = places.argsort(stable=True)
    return torch.stack([order[:-1], order[1:]], dim=1)


def are_equal(
    rows: Float[Tensor, "rows dim"], pairs: Int[Tensor, "pairs 2"]
) -> Bool[Tensor, " pairs"]:
    """Marks the pairs of rows of equal direction, up to rounding."""
    distances = (
        (unit(rows[block[:, 0]]) - unit(rows[block[:, 1]])).norm(dim=1)
        for block in pairs.split(BLOCK)
    )
    return torch.cat([*distances]) < SAME


def shifted(old: Vectors, ids: np.ndarray, new: Float[Tensor, "query dim"]) -> list[str]:
    """Returns a doubt if new queries fit the old vectors of one neighbouring row best.

    A query is compared with the old vectors of its own row and of the next ones above and below.
    The best row must beat the second best by far more than its standard error.
    """
    rows = rows_of_ids(ids, old.ids)
    inside = (rows >= SHIFT) & (rows < len(old) - SHIFT)
    if inside.sum() < FEWEST:
        return []
    queries, own = new.cpu()[torch.from_numpy(inside)], torch.from_numpy(rows[inside])
    shifts = list(range(-SHIFT, SHIFT + 1))
    cosines = torch.stack(
        [(queries * unit(old.vectors[own + shift].cpu())).sum(dim=1) for shift in shifts]
    )
    best, second = cosines.mean(dim=1).topk(2).indices.tolist()
    gain = cosines[best] - cosines[second]
    error = float(gain.std()) / len(gain) ** 0.5
    shift = shifts[best]
    if shift == 0 or float(gain.mean()) <= max(CERTAIN * error, SAME):
        return []
    return [
        f"the new queries fit the old vectors {abs(shift)} row{'s' * (abs(shift) > 1)} "
        f"{'below' if shift > 0 else 'above'} their own better than any others: rows of one "
        f"file are shifted"
    ]


def relation_note(old: Vectors, new: Vectors, plan: SearchPlan) -> list[str]:
    """Returns a note if new queries are not closer to their own old vectors than to others."""
    ids = plan.query_ids[:: max(1, len(plan.query_ids) // SAMPLE)][:SAMPLE]
    if len(ids) < FEWEST or not is_in(ids, old.ids).all():
        return []
    queries, own = unit(rows_of(new, ids)[:, : old.dim]), unit(rows_of(old, ids))
    gain = (queries * (own - own.roll(len(ids) // 2, dims=0))).sum(dim=1)
    if float(gain.mean()) > 3 * float(gain.std()) / len(gain) ** 0.5:
        return []
    return [
        "the new queries are no closer to the old vectors of their own items than to those of "
        "others: they are not in the old space, or they are vectors of other items"
    ]
