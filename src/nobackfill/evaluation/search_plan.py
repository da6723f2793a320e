"""Plans a search over two vector files: queries, gallery, and relevant items, matched by id."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from nobackfill.data.listing import GroundTruth
from nobackfill.errors import DataError, SpaceMismatch
from nobackfill.evaluation.file_columns import (
    check_agreement,
    check_kind_of_ids,
    file_with,
    restrict_to_modalities,
    roles_of,
    takes_part,
)
from nobackfill.vectors import Vectors
from nobackfill.vectors.ids import Ids, is_in, rows_of_ids

Values = tuple[Ids, Ids]  # ids of items, and one value of each


@dataclass(frozen=True, eq=False)
class SearchPlan:
    """Queries, gallery and relevant items of a search, the same for every pair of models.

    Attributes:
        query_ids: Ids of the queries.
        gallery_ids: Ids of the gallery items.
        query_labels: Class of each query, as a number; None if the relevant items are listed.
        gallery_labels: Class of each gallery item, likewise.
        relevant: For each query, the gallery rows of its relevant items, if they are listed.
        query_camera: Camera of each query, if the protocol uses cameras.
        gallery_camera: Camera of each gallery item, likewise.
        ignored: For each query, the gallery rows that are left out of its ranking: the query
            itself, and what the ground truth lists as ignored. None if no query has any.
        new_has_gallery: Whether the new file has every gallery item.
        notes: Notes for the reader of the results.
    """

    query_ids: Ids
    gallery_ids: Ids
    query_labels: Int[Tensor, " query"] | None
    gallery_labels: Int[Tensor, " gallery"] | None
    relevant: list[list[int]] | None
    query_camera: Int[Tensor, " query"] | None
    gallery_camera: Int[Tensor, " gallery"] | None
    ignored: list[list[int]] | None
    new_has_gallery: bool
    notes: tuple[str, ...]

    @property
    def fingerprint(self) -> str:
        """A hash of the items and their relevance; it does not depend on the models."""
        digest = hashlib.sha256()
        for ids in (self.query_ids, self.gallery_ids):
            digest.update("\0".join(map(str, ids.tolist())).encode() + b"\1")
        for sides in (
            (self.query_labels, self.gallery_labels),
            (self.query_camera, self.gallery_camera),
        ):
            numbers = [side.numpy() for side in sides if side is not None]
            if numbers:  # number the values again, among the items of this search
                digest.update(np.unique(np.concatenate(numbers), return_inverse=True)[1].tobytes())
            digest.update(b"\1")
        digest.update(json.dumps([self.relevant, self.ignored]).encode())
        return digest.hexdigest()[:16]

    def is_relevant(self, first: int, last: int) -> Bool[Tensor, "block gallery"]:
        """Marks the relevant gallery items of queries `first` to `last - 1`."""
        if self.relevant is not None:
            return _marks(self.relevant[first:last], len(self.gallery_ids))
        assert self.query_labels is not None
        assert self.gallery_labels is not None
        return self.query_labels[first:last, None] == self.gallery_labels[None]

    def is_ignored(self, first: int, last: int) -> Bool[Tensor, "block gallery"]:
        """Marks the ignored gallery items of queries `first` to `last - 1`."""
        lists = [[]] * (last - first) if self.ignored is None else self.ignored[first:last]
        ignored = _marks(lists, len(self.gallery_ids))
        if self.query_camera is not None:
            assert self.gallery_camera is not None
            same_camera = self.query_camera[first:last, None] == self.gallery_camera[None]
            ignored |= same_camera & self.is_relevant(first, last)
        return ignored


def plan_search(
    old: Vectors,
    new_query: Vectors,
    new_gallery: Vectors,
    *,
    same_camera: bool = True,
    leave_one_out: bool = False,
    modalities: tuple[str, str] | None = None,
    intersect: bool = False,
    ground_truth: GroundTruth | None = None,
) -> SearchPlan:
    """Plans a search over the items of an old and a new file.

    Args:
        old: Old vectors: the stored gallery.
        new_query: New query vectors.
        new_gallery: New gallery vectors, usually the same file.
        same_camera: Whether items of the query's label and camera count.
        leave_one_out: Whether every item queries all others, regardless of the columns.
        modalities: Modality of the queries and of the gallery, values of the column `modality`.
        intersect: Whether to leave out items that only one file has, instead of raising an error.
        ground_truth: Relevant items of each query, in place of labels.
    """
    # choose queries and gallery
    _check_dimensions(old, new_query)
    both = {"the old file": old, "the new file": new_query}
    files = list(both.values())
    check_kind_of_ids(both)
    queries, gallery = roles_of(files, leave_one_out=leave_one_out)
    if modalities is not None:
        queries, gallery = restrict_to_modalities(queries, gallery, modalities, files)
    queries, gallery, notes = _in_both(
        queries,
        gallery,
        old,
        new_query,
        new_gallery,
        only_new=_only_new(new_query, old, modalities),
        intersect=intersect,
    )
    check_not_empty(queries, gallery, "both files use the same ids")
    # look up labels and cameras
    return make_plan(
        queries,
        gallery,
        labels=None if ground_truth is not None else _labels(both),
        cameras=None if same_camera else cameras_of(files),
        ground_truth=ground_truth,
        intersect=intersect,
        new_has_gallery=bool(is_in(gallery, new_gallery.ids).all()),
        notes=notes,
    )


def make_plan(
    queries: Ids,
    gallery: Ids,
    *,
    labels: Values | None,
    cameras: Values | None,
    ground_truth: GroundTruth | None,
    intersect: bool,
    new_has_gallery: bool = True,
    notes: tuple[str, ...] = (),
) -> SearchPlan:
    """Makes the plan of a search from its items and their labels, or from a ground truth."""
    label_numbers: tuple[Int[Tensor, " _"], ...] | tuple[None, None] = (None, None)
    relevant, ignored = None, _own_rows(queries, gallery)
    if ground_truth is None:
        assert labels is not None
        label_numbers = _numbers(labels, queries, gallery)
        if len(torch.cat(label_numbers).unique()) < 2:
            raise DataError(
                "a search needs at least two classes, but all queries and gallery items have the "
                "same label, so every result is right. Check the column of labels."
            )
    else:
        _check_ground_truth(ground_truth, queries)
        relevant = _listed(ground_truth.relevant, queries, gallery, must_exist=not intersect)
        listed = _listed(ground_truth.ignored, queries, gallery, must_exist=False)
        ignored = [a + b for a, b in zip(listed, ignored or [[]] * len(listed), strict=True)]
    query_camera, gallery_camera = (
        (None, None) if cameras is None else _numbers(cameras, queries, gallery)
    )
    return SearchPlan(
        query_ids=queries,
        gallery_ids=gallery,
        query_labels=label_numbers[0],
        gallery_labels=label_numbers[1],
        relevant=relevant,
        query_camera=query_camera,
        gallery_camera=gallery_camera,
        ignored=ignored,
        new_has_gallery=new_has_gallery,
        notes=notes,
    )


def check_not_empty(queries: Ids, gallery: Ids, condition: str) -> None:
    """Raises if a search has no queries or no gallery."""
    if len(queries) == 0 or len(gallery) == 0:
        raise DataError(
            f"a search needs queries and a gallery, but {len(queries)} queries and {len(gallery)} "
            f"gallery items are left. Check the columns is_query and is_gallery, and that "
            f"{condition}."
        )


def cameras_of(files: Sequence[Vectors]) -> Values:
    """Ids and cameras of the first file that has a column `camera`."""
    file = file_with("camera", files)
    if file is None:
        raise DataError(
            "this protocol needs a column `camera`, but no file has one. Add it, or choose the "
            "protocol `plain`."
        )
    return file.ids, file.columns["camera"]


def _check_dimensions(old: Vectors, new: Vectors) -> None:
    """Raises if new queries cannot be compared with old gallery vectors."""
    dim = new.compatible_dim or new.dim
    if dim != old.dim:
        raise SpaceMismatch(
            f"new query vectors need the old {old.dim} dimensions, but they have {dim}. Fit a "
            f"head that maps them into the old space (`nobackfill fit`) and evaluate its output "
            f"(`nobackfill embed HEAD`); or train the new model with `embedding_dim = {old.dim}`; "
            f"or, if its method maps queries, make them by `nobackfill embed --side query` and "
            f"pass them by --query-for-old."
        )


def _in_both(
    queries: Ids,
    gallery: Ids,
    old: Vectors,
    new_query: Vectors,
    new_gallery: Vectors,
    *,
    only_new: Ids,
    intersect: bool,
) -> tuple[Ids, Ids, tuple[str, ...]]:
    """Queries and gallery items that both files have, with notes; or an error about the others."""
    # items that one of the files lacks
    lacking = {
        "queries that the old file lacks": queries[~is_in(queries, old.ids)],
        "queries that the new file lacks": queries[~is_in(queries, new_query.ids)],
        "gallery items that the old file lacks": gallery[~is_in(gallery, old.ids)],
        "gallery items that the new file lacks": gallery[~is_in(gallery, new_gallery.ids)],
        "items that only the new file has": only_new,
    }
    notes = []
    if not is_in(gallery, new_gallery.ids).any():
        lacking.pop("gallery items that the new file lacks")
        notes.append("new/new was not measured: the new file has none of the gallery")
    # report them, or leave them out
    counts = [
        f"{len(ids)} {what} (first: {', '.join(map(repr, ids[:3].tolist()))})"
        for what, ids in lacking.items()
        if len(ids)
    ]
    if counts and not intersect:
        raise DataError(
            f"both files must have the same items, but there are {'; '.join(counts)}. Embed the "
            f"same items with both models, or leave these out with --intersect."
        )
    notes += [f"left out: {count}" for count in counts]
    left_out = np.concatenate(list(lacking.values()))
    return (
        queries[~is_in(queries, left_out)],
        gallery[~is_in(gallery, left_out)],
        tuple(notes),
    )


def _only_new(new: Vectors, old: Vectors, modalities: tuple[str, str] | None) -> Ids:
    """Ids of queries and gallery items that only the new file has."""
    searched = takes_part(new)
    if modalities is not None and "modality" in new.columns:
        searched = searched & np.isin(new.columns["modality"], modalities)
    ids: Ids = new.ids[searched & ~is_in(new.ids, old.ids)]
    return ids


def _labels(files: Mapping[str, Vectors]) -> Values:
    """Ids and labels of the first file that has labels; both files must agree."""
    old, new = files.values()
    if old.labels is None and new.labels is None:
        raise DataError(
            "labels decide which items are relevant, but neither file has a column `label`. Add "
            "one to either file, or name another column (`evaluate --group`). A .npy file has no "
            "columns: write .npz or .parquet, or list the relevant items in a separate file "
            "(--ground-truth)."
        )
    check_agreement("label", files, old.ids[is_in(old.ids, new.ids)])
    file = new if old.labels is None else old
    return file.ids, np.asarray(file.labels)


def _numbers(values: Values, *groups: Ids) -> tuple[Int[Tensor, " _"], ...]:
    """The values of each group of ids, as numbers: equal values get equal numbers."""
    ids, column = values
    numbers = torch.from_numpy(np.unique(column, return_inverse=True)[1].astype(np.int64))
    return tuple(numbers[torch.from_numpy(rows_of_ids(group, ids))] for group in groups)


def _check_ground_truth(ground_truth: GroundTruth, queries: Ids) -> None:
    """Raises if a ground truth lists relevant items, but for none of the queries."""
    listed = ground_truth.relevant
    if listed and not any(str(query) in listed for query in queries.tolist()):
        raise DataError(
            f"there are no queries that have something to find: the ground truth lists nothing for "
            f"any of the {len(queries):,}: it names queries like {next(iter(listed))!r}, the files "
            f"like {str(queries[0])!r}. Write the ids of the files into it."
        )


def _listed(
    lists: Mapping[str, Sequence[str]], queries: Ids, gallery: Ids, *, must_exist: bool
) -> list[list[int]]:
    """For each query, the gallery rows of the items that are listed for it."""
    row_of = {str(item): row for row, item in enumerate(gallery.tolist())}
    rows = []
    for query in queries.tolist():
        items = lists.get(str(query), ())
        if must_exist and (missing := [item for item in items if item not in row_of]):
            raise DataError(
                f"all items of the ground truth must be in the gallery, but of query {query!r} "
                f"{len(missing)} items are not, the first being {missing[0]!r}. Embed them too, "
                f"or leave them out with --intersect."
            )
        rows.append([row_of[item] for item in items if item in row_of])
    return rows


def _marks(lists: Sequence[Sequence[int]], width: int) -> Bool[Tensor, "lists width"]:
    """True at each column that a list names."""
    marks = torch.zeros(len(lists), width, dtype=torch.bool)
    for row, columns in enumerate(lists):
        marks[row, list(columns)] = True
    return marks


def _own_rows(queries: Ids, gallery: Ids) -> list[list[int]] | None:
    """For each query, its own row in the gallery, if it has one; None if no query has one."""
    if not is_in(queries, gallery).any():
        return None
    row_of = {item: row for row, item in enumerate(gallery.tolist())}
    return [[row_of[item]] if item in row_of else [] for item in queries.tolist()]
