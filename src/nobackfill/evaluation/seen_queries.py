"""Queries that a head has seen: it was fitted on them, or on items of their group."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Int

from nobackfill.evaluation.file_columns import rows_of
from nobackfill.evaluation.near_duplicates import have_copies
from nobackfill.evaluation.search_plan import SearchPlan
from nobackfill.vectors import Vectors
from nobackfill.vectors.columns import as_text
from nobackfill.vectors.contents import FITTED
from nobackfill.vectors.ids import Ids, is_in, rows_of_ids

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
    old: Vectors,
    files: Sequence[Vectors],
    plan: SearchPlan,
    query_groups: Int[np.ndarray, " query"],
    gallery_groups: Int[np.ndarray, " gallery"],
) -> SeenQueries:
    """Marks the queries whose group has an item that a head was fitted on.

    The item need not be searched: it may be a training item of the same class, or a near-duplicate
    of a query.

    Args:
        old: Old vectors, whose labels come before those of new files.
        files: New vectors, whose column `fitted` marks the items that the head was fitted on.
        plan: Queries and gallery of the search.
        query_groups: Group of each query.
        gallery_groups: Group of each gallery item.
    """
    fitted = np.concatenate([plan.query_ids[:0], *map(fitted_ids, files)])
    is_query, is_gallery = is_in(plan.query_ids, fitted), is_in(plan.gallery_ids, fitted)
    others = fitted[~is_in(fitted, plan.query_ids) & ~is_in(fitted, plan.gallery_ids)]
    if plan.query_labels is not None:
        is_query |= is_of_fitted_class((old, *files), plan.query_ids, fitted)
    if len(others):
        is_query |= is_copy_of_fitted((old, *files), plan.query_ids, query_groups, others)
    groups = np.concatenate([query_groups[is_query], gallery_groups[is_gallery]])
    return SeenQueries(np.isin(query_groups, groups), int(is_gallery.sum()), len(plan.gallery_ids))


def fitted_ids(file: Vectors) -> Ids:
    """Returns the ids of fitted items; marks may be truth values, numbers or text."""
    values = file.columns.get(FITTED)
    if values is None or values.dtype.kind == "b":
        return file.ids[:0] if values is None else file.ids[values]
    marks = np.strings.lower(as_text(values))
    is_fitted: Bool[np.ndarray, " item"] = np.isin(marks, ["true", "1", "1.0"])
    is_known = is_fitted | np.isin(marks, ["false", "0", "0.0"])
    return file.ids[is_fitted] if is_known.all() else file.ids[:0]


def is_of_fitted_class(
    files: Sequence[Vectors], queries: Ids, fitted: Ids
) -> Bool[np.ndarray, " query"]:
    """Marks the queries of classes that a head was fitted on."""
    file = next(file for file in files if file.labels is not None)
    assert file.labels is not None
    labels = file.labels[rows_of_ids(queries, file.ids)]
    return is_in(labels, np.unique(file.labels[is_in(file.ids, fitted)]))


def is_copy_of_fitted(
    files: Sequence[Vectors], queries: Ids, query_groups: Int[np.ndarray, " query"], fitted: Ids
) -> Bool[np.ndarray, " query"]:
    """Marks the queries that are near-duplicates of fitted items by both models.

    Classes of fitted items are known if a file has labels, and copies with noise are found then.
    """
    old, new = files[:2]
    shared = np.unique(fitted[is_in(fitted, old.ids) & is_in(fitted, new.ids)])
    groups = np.arange(len(shared))
    for file in files:
        if file.labels is not None and is_in(shared, file.ids).all():
            labels = file.labels[rows_of_ids(shared, file.ids)]
            groups = np.unique(labels, return_inverse=True)[1]
            break
    query_sides, fitted_sides = (
        [rows_of(old, ids), rows_of(new, ids)[:, : new.compatible_dim]] for ids in (queries, shared)
    )
    return have_copies(query_sides, query_groups, fitted_sides, groups)
