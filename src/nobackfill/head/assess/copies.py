"""Near-duplicates of test queries: among other test classes, and among the fitted items."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from nobackfill.evaluation.dependence import (
    COPY,
    Groups,
    components,
    copies_note,
    count_of_joined,
    near_duplicates,
)
from nobackfill.evaluation.mixed_scores import Part
from nobackfill.head.assess.split import FittedItems
from nobackfill.ops.nearest import rows_per_block

SEEN = "near-duplicates of items that were fitted on, or of one class with such"


@dataclass(frozen=True, eq=False)
class IndependentQueries:
    """Test queries that no head has seen, and which of them depend on each other."""

    part: Part  # the test part with these queries
    groups: Groups  # group of each query: its class, joined with classes of near-duplicates
    all_seen: bool  # whether no query is unseen, so that none is left out
    notes: Sequence[str]


def independent_queries(test: Part, fitted: FittedItems) -> IndependentQueries:
    """Leaves out the queries of groups with a near-duplicate among the fitted items."""
    queries = test.old[test.queries], test.new[test.queries]
    # Join the classes of near-duplicates.
    own = test.groups
    edges = [(own[one], own[other]) for one, other in near_duplicates(queries, own)]
    groups = components(int(own.max()) + 1, edges)[own]
    notes = copies_note(count_of_joined(own, groups), len(own))
    # Leave out whole groups.
    is_seen = np.isin(groups, groups[copied(queries, (fitted.old, fitted.new))])
    if is_seen.all() or not is_seen.any():
        return IndependentQueries(test, groups, bool(is_seen.all()), notes)
    notes.append(f"{is_seen.sum():,} of {len(own):,} test queries are left out: they are {SEEN}")
    part = replace(test, queries=test.queries[torch.from_numpy(~is_seen)])
    return IndependentQueries(part, groups[~is_seen], False, notes)


def copied(
    queries: tuple[Float[Tensor, "query _"], ...], items: tuple[Float[Tensor, "items _"], ...]
) -> Bool[np.ndarray, " query"]:
    """Marks queries (unit vectors) of which an item is a near-duplicate by every model."""
    marks = torch.zeros(len(queries[0]), dtype=torch.bool)
    for rows in torch.arange(len(items[0])).split(rows_per_block(8 * len(marks))):
        is_copy = torch.ones(len(rows), len(marks), dtype=torch.bool)
        for query, item in zip(queries, items, strict=True):
            is_copy &= F.normalize(item[rows], dim=1) @ query.T >= COPY
        marks |= is_copy.any(dim=0)
    result: Bool[np.ndarray, " query"] = marks.numpy()
    return result
