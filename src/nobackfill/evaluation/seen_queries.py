"""Queries that a head has seen: it was fitted on them, or on items of their group."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Int

from nobackfill.evaluation.search_plan import SearchPlan
from nobackfill.vectors import Vectors
from nobackfill.vectors.contents import FITTED
from nobackfill.vectors.ids import is_in

REMEDY = "fit with a column `split`, or evaluate on classes that the head was not fitted on"


@dataclass(frozen=True, eq=False)
class SeenQueries:
    """Which queries of a search a head has seen."""

    marks: Bool[np.ndarray, " query"]
    gallery: int = 0  # number of gallery items that it was fitted on
    num_gallery: int = 0

    @property
    def doubt(self) -> str | None:
        """The reason why the search proves nothing; None if some queries are unseen."""
        if not len(self.marks) or not self.marks.all():
            return None
        return (
            f"the head was fitted on all {len(self.marks):,} queries, or on items of their "
            f"classes, so nothing is known about others. To measure that, {REMEDY}"
        )

    @property
    def note(self) -> str | None:
        """What was left out, or what part of the gallery was seen; None if nothing was."""
        if self.doubt is not None:
            return None
        if number := int(self.marks.sum()):
            return (
                f"{number:,} of {len(self.marks):,} queries are left out: the head was fitted on "
                f"them, or on items of their classes"
            )
        if self.gallery:
            return (
                f"{self.gallery:,} of {self.num_gallery:,} gallery items were used to fit the "
                f"head; expect a smaller gain on unseen items"
            )
        return None


def seen_queries(
    files: Iterable[Vectors],
    plan: SearchPlan,
    query_groups: Int[np.ndarray, " query"],
    gallery_groups: Int[np.ndarray, " gallery"],
) -> SeenQueries:
    """Marks the queries whose group has an item that a head was fitted on.

    Args:
        files: New vectors, whose column `fitted` marks the items that the head was fitted on.
        plan: Queries and gallery of the search.
        query_groups: Group of each query.
        gallery_groups: Group of each gallery item.
    """
    marked = [
        file.ids[file.columns[FITTED]]
        for file in files
        if FITTED in file.columns and file.columns[FITTED].dtype.kind == "b"
    ]
    if not marked:
        return SeenQueries(np.zeros(len(plan.query_ids), dtype=bool))
    fitted = np.concatenate(marked)
    is_query, is_gallery = is_in(plan.query_ids, fitted), is_in(plan.gallery_ids, fitted)
    groups = np.concatenate([query_groups[is_query], gallery_groups[is_gallery]])
    return SeenQueries(np.isin(query_groups, groups), int(is_gallery.sum()), len(plan.gallery_ids))
