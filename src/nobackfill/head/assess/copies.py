"""Near-duplicates of test queries: among other test classes, and among the fitted items."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from nobackfill.evaluation.dependence import copies_note, count_of_joined
from nobackfill.evaluation.mixed_scores import Part
from nobackfill.evaluation.near_duplicates import Groups, have_copies, near_duplicates
from nobackfill.head.assess.split import FittedItems
from nobackfill.ops.components import components

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
    groups = components(int(own.max()) + 1, [near_duplicates(queries, own)])[own]
    notes = copies_note(count_of_joined(own, groups), len(own))
    # Leave out whole groups.
    items = fitted.old, fitted.new
    is_copied = have_copies(queries, own, items, fitted.classes.cpu().numpy())
    is_seen = np.isin(groups, groups[is_copied])
    if is_seen.all() or not is_seen.any():
        return IndependentQueries(test, groups, bool(is_seen.all()), notes)
    notes.append(f"{is_seen.sum():,} of {len(own):,} test queries are left out: they are {SEEN}")
    part = replace(test, queries=test.queries[torch.from_numpy(~is_seen)])
    return IndependentQueries(part, groups[~is_seen], False, notes)
