"""Plans a search over vector files: queries, gallery, and relevant items, matched by id."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from nobackfill.core.short import Short
from nobackfill.data.listing import GroundTruth
from nobackfill.errors import DataError, SpaceMismatch
from nobackfill.evaluation.file_columns import (
    check_agreement,
    check_kind_of_ids,
    check_one_label,
    file_with,
    label_hint,
    restrict_to_modalities,
    roles_of,
    takes_part,
)
from nobackfill.evaluation.protocols import PROTOCOLS, Protocol
from nobackfill.evaluation.swapped import SWAPPED, swap_of
from nobackfill.vectors import Vectors
from nobackfill.vectors.ids import Ids, is_in, rows_of_ids

Values = tuple[Ids, Ids]  # ids of items, and one value of each


@dataclass(frozen=True, eq=False, repr=False)
class SearchPlan(Short):
    """Queries, gallery and relevant items of a search, the same for every pair of models."""

    query_ids: Ids  # ids of the queries
    gallery_ids: Ids  # ids of the gallery items
    # class of each query, as a number; None if the relevant items are listed
    query_labels: Int[Tensor, " query"] | None
    gallery_labels: Int[Tensor, " gallery"] | None  # class of each gallery item, likewise
    # for each query, the gallery rows of its relevant items, if they are listed
    relevant: list[list[int]] | None
    query_camera: Int[Tensor, " query"] | None  # camera of each query, if the protocol uses cameras
    gallery_camera: Int[Tensor, " gallery"] | None  # camera of each gallery item, likewise
    # For each query, the gallery rows that are left out of its ranking: the query itself, and
    # what the ground truth lists as ignored. None if no query has any
    ignored: list[list[int]] | None
    new_has_gallery: bool  # whether the new file has every gallery item
    notes: tuple[str, ...]  # notes for the reader of the results

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

    def keep(self, marks: Bool[np.ndarray, " query"]) -> "SearchPlan":
        """Returns the same search with the marked queries alone."""
        rows = torch.from_numpy(marks)

        def kept(lists: list[list[int]] | None) -> list[list[int]] | None:
            return None if lists is None else list(compress(lists, marks))

        return replace(
            self,
            query_ids=self.query_ids[marks],
            query_labels=None if self.query_labels is None else self.query_labels[rows],
            query_camera=None if self.query_camera is None else self.query_camera[rows],
            relevant=kept(self.relevant),
            ignored=kept(self.ignored),
        )

    def is_relevant(self, rows: Int[Tensor, " rows"]) -> Bool[Tensor, "rows gallery"]:
        """Marks the relevant gallery items of some queries."""
        if self.relevant is not None:
            return _marks([self.relevant[row] for row in rows.tolist()], len(self.gallery_ids))
        assert self.query_labels is not None
        assert self.gallery_labels is not None
        return self.query_labels[rows, None] == self.gallery_labels

    def is_ignored(self, rows: Int[Tensor, " rows"]) -> Bool[Tensor, "rows gallery"]:
        """Marks the ignored gallery items of some queries."""
        lists = [[] if self.ignored is None else self.ignored[row] for row in rows.tolist()]
        ignored = _marks(lists, len(self.gallery_ids))
        if self.query_camera is not None:
            assert self.gallery_camera is not None
            same_camera = self.query_camera[rows, None] == self.gallery_camera
            ignored |= same_camera & self.is_relevant(rows)
        return ignored


def plan_search(
    files: Mapping[str, Vectors],
    protocol: Protocol = PROTOCOLS["plain"],
    *,
    new_gallery: Vectors | None = None,
    covering: Mapping[str, Vectors] | None = None,
    intersect: bool = False,
    ground_truth: GroundTruth | None = None,
) -> SearchPlan:
    """Plans a search over the items that all files have.

    Columns are read from the first file that has them. Labels must agree. Items are in the order
    of the oldest file.

    Args:
        files: Files by their name in errors, the oldest first.
        protocol: Rules of the search.
        new_gallery: Gallery vectors of the last file, if they may be in another file, or missing.
        covering: Files that must have the same items, but whose columns are not read.
        intersect: Whether to leave out items that a file lacks, instead of raising an error.
        ground_truth: Relevant items of each query, in place of labels.
    """
    models = list(files.values())
    all_files = {**files, **(covering or {})}
    check_kind_of_ids(all_files)
    # choose queries and gallery
    queries, gallery = roles_of(models, leave_one_out=protocol.leave_one_out)
    if protocol.modalities is not None:
        queries, gallery = restrict_to_modalities(queries, gallery, protocol.modalities, models)
    oldest = models[0].ids
    queries, gallery = oldest[is_in(oldest, queries)], oldest[is_in(oldest, gallery)]
    # leave out what a file lacks, or raise
    gallery_ids = {name: file.ids for name, file in all_files.items()}
    notes: list[str] = []
    if new_gallery is not None:
        gallery_ids[list(files)[-1]] = new_gallery.ids
        if not is_in(gallery, new_gallery.ids).any():
            gallery_ids[list(files)[-1]] = gallery
            notes.append("new/new was not measured: the new file has none of the gallery")
    others = _not_in_oldest(models, protocol.modalities)
    lacking = _lacking(all_files, gallery_ids, queries, gallery, others)
    if lacking and not intersect:
        raise DataError(
            f"all files must have the same items, but {'; '.join(lacking)}. Embed the same items "
            f"with every model, or leave these out with --intersect."
        )
    notes += [f"left out: {items}" for items in lacking]
    left_out = np.concatenate([others[:0], *lacking.values()])
    queries, gallery = (ids[~is_in(ids, left_out)] for ids in (queries, gallery))
    if len(queries) == 0 or len(gallery) == 0:
        raise DataError(
            f"a search needs queries and a gallery, but {len(queries)} queries and {len(gallery)} "
            f"gallery items are left. Check the columns is_query and is_gallery, and that all "
            f"files use the same ids."
        )
    # find the relevant and the ignored items
    labels: tuple[Int[Tensor, " _"], ...] | tuple[None, None] = (None, None)
    relevant, ignored = None, _own_rows(queries, gallery)
    if ground_truth is None:
        labels = _numbers(_labels(files), queries, gallery)
        if len(torch.cat(labels).unique()) < 2:
            raise DataError(
                "a search needs at least two classes, but all queries and gallery items have the "
                "same label, so every result is right. Check the column of labels."
            )
    else:
        _check_ground_truth(ground_truth, queries)
        relevant = _listed(ground_truth.relevant, queries, gallery, must_exist=not intersect)
        listed = _listed(ground_truth.ignored, queries, gallery, must_exist=False)
        ignored = [a + b for a, b in zip(listed, ignored or [[]] * len(listed), strict=True)]
    cameras: tuple[Int[Tensor, " _"], ...] | tuple[None, None] = (None, None)
    if not protocol.same_camera:
        cameras = _numbers(_cameras(models), queries, gallery)
    return SearchPlan(
        query_ids=queries,
        gallery_ids=gallery,
        query_labels=labels[0],
        gallery_labels=labels[1],
        relevant=relevant,
        query_camera=cameras[0],
        gallery_camera=cameras[1],
        ignored=ignored,
        new_has_gallery=new_gallery is None or bool(is_in(gallery, new_gallery.ids).all()),
        notes=tuple(notes),
    )


def plan_upgrade(
    old: Vectors,
    new_query: Vectors,
    new_gallery: Vectors,
    protocol: Protocol = PROTOCOLS["plain"],
    *,
    intersect: bool = False,
    ground_truth: GroundTruth | None = None,
) -> SearchPlan:
    """Plans a search over an old and a new file; raises if new queries do not fit the old gallery.

    New gallery vectors are usually in the same file as new queries.
    """
    dim = new_query.compatible_dim or new_query.dim
    if dim != old.dim:
        if sign := swap_of(old, new_query):
            raise SpaceMismatch(f"{SWAPPED}: {sign}. Pass them the other way round.")
        raise SpaceMismatch(
            f"new query vectors need the {old.dim} dimensions of the old file, but they have "
            f"{dim}. Fit a head that maps them into the old space (`nobackfill fit`) and evaluate "
            f"its output (`nobackfill embed HEAD`); or train the new model with `embedding_dim = "
            f"{old.dim}`; or, if its method maps queries, make them by `nobackfill embed --side "
            f"query` and pass them by --query-for-old."
        )
    return plan_search(
        {"the old file": old, "the new file": new_query},
        protocol,
        new_gallery=new_gallery,
        intersect=intersect,
        ground_truth=ground_truth,
    )


def _not_in_oldest(files: Sequence[Vectors], modalities: tuple[str, str] | None) -> Ids:
    """Returns the ids of queries and gallery items of any file that are not in the oldest."""
    oldest, *rest = files
    missing = [oldest.ids[:0]]
    for file in rest:
        searched = takes_part(file) & ~is_in(file.ids, oldest.ids)
        if modalities is not None and "modality" in file.columns:
            searched &= np.isin(file.columns["modality"], modalities)
        missing.append(file.ids[searched])
    ids: Ids = np.concatenate(missing)
    return ids[np.sort(np.unique(ids, return_index=True)[1])]


def _lacking(
    files: Mapping[str, Vectors],
    gallery_ids: Mapping[str, Ids],
    queries: Ids,
    gallery: Ids,
    others: Ids,
) -> dict[str, Ids]:
    """Returns the items that each file lacks, by a description of them."""
    lacking = {}
    for name, file in files.items():
        missing = {
            "queries": queries[~is_in(queries, file.ids)],
            "gallery items": gallery[~is_in(gallery, gallery_ids[name])],
            "items that other files search": others[~is_in(others, file.ids)],
        }
        if np.array_equal(queries, gallery) and np.array_equal(
            missing["queries"], missing["gallery items"]
        ):
            missing["items"] = missing.pop("queries")
            del missing["gallery items"]
        for what, ids in missing.items():
            if len(ids):
                first = ", ".join([*map(repr, ids[:3].tolist()), *["…"][: len(ids) > 3]])
                lacking[f"{name} lacks {len(ids):,} {what} ({first})"] = ids
    return lacking


def _labels(files: Mapping[str, Vectors]) -> Values:
    """Returns the ids and labels of the first file that has labels; all files must agree."""
    file = next((file for file in files.values() if file.labels is not None), None)
    if file is None:
        check_one_label(files.values())
        hint = label_hint(files.values())
        raise DataError(
            f"labels decide which items are relevant, but no file has a column `label`. Name "
            f"another column (--label, in Python `label=`), or pass the relevant items (--pairs, "
            f"`pairs=`). `nobackfill.compare_rankings` needs neither{hint and f'; {hint}'}."
        )
    check_agreement("label", files)
    return file.ids, np.asarray(file.labels)


def _cameras(files: Sequence[Vectors]) -> Values:
    """Returns the ids and cameras of the first file that has a column `camera`."""
    file = file_with("camera", files)
    if file is None:
        raise DataError(
            "this protocol needs a column `camera`, but no file has one. Add it, or choose the "
            "protocol `plain`."
        )
    return file.ids, file.columns["camera"]


def _numbers(values: Values, *groups: Ids) -> tuple[Int[Tensor, " _"], ...]:
    """Returns the values of each group of ids, as numbers: equal values get equal numbers."""
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
    """Returns for each query the gallery rows of the items that are listed for it."""
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
    """Marks each column that a list names."""
    marks = torch.zeros(len(lists), width, dtype=torch.bool)
    for row, columns in enumerate(lists):
        marks[row, list(columns)] = True
    return marks


def _own_rows(queries: Ids, gallery: Ids) -> list[list[int]] | None:
    """Returns the own gallery rows of each query: one or none; None if no query has one."""
    if not is_in(queries, gallery).any():
        return None
    row_of = {item: row for row, item in enumerate(gallery.tolist())}
    return [[row_of[item]] if item in row_of else [] for item in queries.tolist()]
