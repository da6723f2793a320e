"""Assesses an upgrade without labels: how much rankings change, by a closed-form map."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool
from numpy.typing import NDArray

from nobackfill.core.numbers import count
from nobackfill.errors import DataError
from nobackfill.evaluation.agreement import Agreement, compare_rankings
from nobackfill.evaluation.evaluate import read_sides
from nobackfill.evaluation.file_columns import rows_of
from nobackfill.evaluation.judgements import Judged, judge
from nobackfill.evaluation.rankings import Ranking
from nobackfill.head.assess.split import roles_of_items, training_items
from nobackfill.head.closed_form import BLOCK, Affine, closed_forms
from nobackfill.head.examples import Examples
from nobackfill.head.inputs import common_ids
from nobackfill.ops.nearest import rows_per_block
from nobackfill.vectors import Vectors
from nobackfill.vectors.contents import FITTED
from nobackfill.vectors.ids import rows_of_ids
from nobackfill.vectors.matrix import Data

FEWEST = 20  # smallest number of items to fit a map to
HELD_OUT = 5  # a map is chosen on every fifth of the items to fit to


def assess_rankings(
    old: Data,
    new: Data,
    *,
    ids: Any = None,
    k: int = 100,
    seed: int = 0,
    device: torch.device | str = "cpu",
    progress: Callable[[int, int], None] | None = None,
) -> Agreement:
    """Compares the rankings of two models whose spaces differ, without labels.

    A closed-form map, which needs no labels, brings new vectors into the old space. It is fitted
    to the training items of the column `split`, or else to items that are no queries, or else to
    a random half; other items search. A second stage ranks their first results again by new
    vectors. This says how much changes, not what is better.

    Args:
        old: Vectors of the model in service, as for `evaluate`.
        new: Vectors of the model that may replace it.
        ids: Id of each row of the sides that have none.
        k: Number of first results that the second stage ranks again, at most 100.
        seed: Random seed of all samples.
        device: Device of the search.
        progress: Called with the number of searches done and the number of all searches.
    """
    (old, new), notes = read_sides({"old": old, "new": new}, columns=(), ids=ids)
    mapped, name, fitted = map_without_labels(old, new, seed=seed)
    agreement = compare_rankings(
        old, new, query_for_old=mapped, intersect=True, seed=seed, device=device, progress=progress
    )
    rankings = dict(agreement.rankings)
    if "new_new" in rankings:
        rankings["two_stage"] = ranked_again(rankings["new_old"], new, agreement, k)
    fit = (
        f"queries of new/old are mapped by {name}, which was fitted to "
        f"{count(fitted, 'item', 'items')} without labels"
    )
    return replace(
        agreement,
        rankings=rankings,
        head=name,
        reranked=min(k, agreement.depth),
        notes=[*notes, *agreement.notes, fit],
    )


def judge_mapped(
    old: Data,
    new: Data,
    judgements: Any,
    *,
    seed: int = 0,
    device: torch.device | str = "cpu",
) -> Judged:
    """Evaluates a person's judgements of new queries, mapped as by `assess_rankings`.

    Arguments are those of `judge`; the seed must be that of the judged page.
    """
    (old, new), _ = read_sides({"old": old, "new": new}, columns=())
    mapped, _, _ = map_without_labels(old, new, seed=seed)
    return judge(
        old, new, judgements, query_for_old=mapped, intersect=True, seed=seed, device=device
    )


def map_without_labels(old: Vectors, new: Vectors, *, seed: int) -> tuple[Vectors, str, int]:
    """Fits a closed-form map from new to old vectors.

    Returns the mapped vectors with a column `fitted`, the name of the map, and the number of items
    that it was fitted to.
    """
    ids = common_ids(new, old)
    marks = items_to_fit(old, new, ids, seed=seed)
    chosen = np.random.default_rng(seed).permutation(np.flatnonzero(marks))
    if len(chosen) < FEWEST:
        raise DataError(
            f"A map needs at least {FEWEST} items to be fitted to, but there are {len(chosen)} "
            f"that both files have and that do not search. Add items."
        )
    fitted, unseen = chosen[len(chosen) // HELD_OUT :], chosen[: len(chosen) // HELD_OUT]

    # choose the map that comes closest to unseen old vectors, and fit it to all of these items
    target = F.normalize(rows_of(old, ids[unseen]).float(), dim=1)
    source = rows_of(new, ids[unseen]).float()
    distances = {
        name: float((affine(source) - target).norm(dim=1).mean())
        for name, affine in _maps(old, new, ids[fitted]).items()
    }
    best = min(distances, key=lambda name: distances[name])
    affine = _maps(old, new, ids[chosen])[best]

    # map all new vectors, and mark those that were fitted to
    is_fitted = np.zeros(len(new), dtype=bool)
    is_fitted[rows_of_ids(ids[chosen], new.ids)] = True
    vectors = torch.cat([affine(rows.float()) for rows in new.vectors.split(BLOCK)])
    columns = {**new.columns, FITTED: is_fitted}
    mapped = replace(new, vectors=vectors, columns=columns, compatible_dim=None)
    return mapped, best, len(chosen)


def _maps(old: Vectors, new: Vectors, ids: NDArray[Any]) -> dict[str, Affine]:
    """Returns every closed form, fitted to some items."""
    return closed_forms(Examples(rows_of(new, ids), rows_of(old, ids), None))


def items_to_fit(
    old: Vectors, new: Vectors, ids: NDArray[Any], *, seed: int
) -> Bool[np.ndarray, " items"]:
    """Marks the items to fit to: training items, or else no queries, or else a random half."""
    is_training = training_items((old, new), ids)
    if is_training is not None:
        return np.asarray(is_training.numpy())
    roles = roles_of_items((old, new), ids)
    if roles is not None and (~roles.is_query).sum() >= FEWEST:
        return np.asarray(~roles.is_query.numpy())
    marks = np.zeros(len(ids), dtype=bool)
    marks[np.random.default_rng(seed).permutation(len(ids))[: len(ids) // 2]] = True
    return marks


def ranked_again(first: Ranking, new: Vectors, agreement: Agreement, k: int) -> Ranking:
    r"""Returns the same results of each query, the first `k` in the order of their new vectors.

    .. math::
        s_{qj} = \cos(n_q, n_j), \qquad j \in \mathrm{top}_k(q)
    """
    query = F.normalize(rows_of(new, agreement.query_ids).float(), dim=1)
    gallery = F.normalize(rows_of(new, agreement.gallery_ids).float(), dim=1)
    places, scores = [], []
    width = first.places[:, :k].shape[1]
    for rows in torch.arange(len(query)).split(rows_per_block(4 * width * gallery.shape[1])):
        best = first.places[rows, :k]
        score = torch.einsum("qd,qkd->qk", query[rows], gallery[best])
        order = score.argsort(dim=1, descending=True, stable=True)
        places.append(best.gather(1, order))
        scores.append(score.gather(1, order))
    return Ranking(
        torch.cat([torch.cat(places), first.places[:, k:]], dim=1),
        torch.cat([torch.cat(scores), first.scores[:, k:]], dim=1),
    )
