"""Two files of vectors, matched by id: who asks, who is searched, and what counts as found."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from nobackfill.core.config import suggest
from nobackfill.data.listing import GroundTruth
from nobackfill.errors import ConfigError, DataError, SpaceMismatch
from nobackfill.vectors import Vectors
from nobackfill.vectors.columns import as_key
from nobackfill.vectors.ids import Ids, is_in, rows_of_ids


@dataclass(frozen=True, eq=False)
class SearchPlan:
    """The same queries, gallery and relevance for every pair of models.

    Attributes:
        query_ids: Who asks.
        gallery_ids: Who is searched.
        query_labels: The class of each query, as a number; None where relevance is listed.
        gallery_labels: The class of each gallery item, likewise.
        relevant: For each query, the places in the gallery of what it shall find, where that is
            listed.
        query_camera: The camera of each query, where the protocol asks for it.
        gallery_camera: The camera of each gallery item, likewise.
        ignored: For each query, the places in the gallery of what counts neither way: itself,
            and what the lists say. None where no query has any.
        new_has_gallery: Whether the new file covers the gallery.
        notes: What a reader should know.
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
        """The same for searches of the same items with the same aims, whatever the models."""
        digest = hashlib.sha256()
        for ids in (self.query_ids, self.gallery_ids):
            digest.update("\0".join(map(str, ids.tolist())).encode() + b"\1")
        for sides in (
            (self.query_labels, self.gallery_labels),
            (self.query_camera, self.gallery_camera),
        ):
            told = [side.numpy() for side in sides if side is not None]
            if told:  # numbered among those that take part
                digest.update(np.unique(np.concatenate(told), return_inverse=True)[1].tobytes())
            digest.update(b"\1")
        digest.update(json.dumps([self.relevant, self.ignored]).encode())
        return digest.hexdigest()[:16]

    def is_relevant(self, first: int, last: int) -> Bool[Tensor, "some gallery"]:
        """What the queries from `first` to before `last` shall find."""
        if self.relevant is not None:
            return _marked(self.relevant[first:last], len(self.gallery_ids))
        assert self.query_labels is not None
        assert self.gallery_labels is not None
        return self.query_labels[first:last, None] == self.gallery_labels[None]

    def is_ignored(self, first: int, last: int) -> Bool[Tensor, "some gallery"]:
        """What counts neither way for the queries from `first` to before `last`."""
        lists = [[]] * (last - first) if self.ignored is None else self.ignored[first:last]
        ignored = _marked(lists, len(self.gallery_ids))
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
    """Decides from the columns of both files who asks and who is searched.

    Args:
        old: The old vectors: the gallery of today.
        new_query: The new query vectors.
        new_gallery: The new gallery vectors, mostly the same file.
        same_camera: Whether items of the query's label and camera count.
        leave_one_out: Whether every item queries all others, whatever the columns say.
        modalities: Of those that ask and of those that are searched, where a file has a column
            `modality`.
        intersect: Whether items that only one file has are left out instead of being an error.
        ground_truth: What each query shall find, where labels do not say it.
    """
    _check_dimensions(old, new_query)
    _check_kind_of_ids(old, new_query)
    queries, gallery = roles_of(old, new_query, leave_one_out=leave_one_out)
    if modalities is not None:
        queries, gallery = _of_modalities(queries, gallery, modalities, old, new_query)
    queries, gallery, notes = _in_both(
        queries,
        gallery,
        old,
        new_query,
        new_gallery,
        strangers=_strangers(new_query, old, modalities),
        intersect=intersect,
    )
    if len(queries) == 0 or len(gallery) == 0:
        raise DataError(
            f"wanted queries and a gallery, but {len(queries)} queries and {len(gallery)} gallery "
            f"items are left. Check the columns is_query and is_gallery, and that both files name "
            f"their items alike."
        )
    labels: tuple[Int[Tensor, " _"], ...] | tuple[None, None] = (None, None)
    relevant, ignored = None, _places(queries, gallery)
    if ground_truth is None:
        labels = _numbers(_labels(old, new_query), queries, gallery)
        if len(torch.cat(labels).unique()) < 2:
            raise DataError(
                "wanted at least two classes, but all queries and gallery items have the same "
                "label: whatever is found is right. Check the column of labels."
            )
    else:
        _check_asked(ground_truth, queries)
        relevant = _listed(ground_truth.relevant, queries, gallery, must_be_there=not intersect)
        also = _listed(ground_truth.ignored, queries, gallery, must_be_there=False)
        ignored = [a + b for a, b in zip(also, ignored or [[]] * len(also), strict=True)]
    query_camera, gallery_camera = (
        (None, None) if same_camera else _numbers(_cameras(old, new_query), queries, gallery)
    )
    return SearchPlan(
        query_ids=queries,
        gallery_ids=gallery,
        query_labels=labels[0],
        gallery_labels=labels[1],
        relevant=relevant,
        query_camera=query_camera,
        gallery_camera=gallery_camera,
        ignored=ignored,
        new_has_gallery=bool(is_in(gallery, new_gallery.ids).all()),
        notes=notes,
    )


def rows_of(vectors: Vectors, ids: Ids) -> Float[Tensor, "rows dim"]:
    """The vectors of the given ids, in their order; no copy of rows that lie together."""
    rows = rows_of_ids(ids, vectors.ids)
    if len(rows) and (rows[-1] - rows[0] == len(rows) - 1) and (np.diff(rows) == 1).all():
        return vectors.vectors[int(rows[0]) : int(rows[-1]) + 1]
    return vectors.vectors[torch.from_numpy(rows)]


def columns_of(files: Sequence[Vectors], ids: Ids) -> dict[str, Ids]:
    """What the files tell of some items: each column, and `label`, of the first that has it."""
    found: dict[str, Ids] = {}
    for file in files:
        if not is_in(ids, file.ids).all():
            continue
        rows = rows_of_ids(ids, file.ids)
        labels = {} if file.labels is None else {"label": file.labels}
        for name, values in {**labels, **file.columns}.items():
            found.setdefault(name, values[rows])
    return found


def check_agreement(column: str, files: Mapping[str, Vectors], ids: Ids) -> None:
    """Raises where two files that have a column tell different things of an item.

    Args:
        column: `label`, or any other.
        files: By what the error calls them: "the old file".
        ids: Of items that every file has.
    """
    told: list[tuple[str, Ids]] = []
    for name, file in files.items():
        values = file.labels if column == "label" else file.columns.get(column)
        if values is not None:
            told.append((name, values[rows_of_ids(ids, file.ids)]))
    for name, theirs in told[1:]:
        first, ours = told[0]
        differ = ours.astype(str) != theirs.astype(str)
        if differ.any():
            item, one, other = (values[differ][0].item() for values in (ids, ours, theirs))
            what = "labels" if column == "label" else f"`{column}`"
            raise DataError(
                f"wanted the same {what} in all files, but {int(differ.sum()):,} items differ: "
                f"{item!r} is {one!r} in {first} and {other!r} in {name}. Correct one, or drop its "
                f"column `{column}`."
            )


def labelled_by(column: str, files: Mapping[str, Vectors]) -> list[Vectors]:
    """The files with what a column says for labels; those that lack it then have none.

    Raises where none has it, or two tell different things of an item.

    Args:
        column: That says what belongs together.
        files: By what an error calls them: "the old file".
    """
    telling = {name: file for name, file in files.items() if column in file.columns}
    if not telling:
        known = dict.fromkeys(name for file in files.values() for name in _column_names(file))
        raise ConfigError(
            f"wanted a column `{column}` that says what belongs together, but no file has it. "
            + (suggest(column, known) if known else "Add it to either file.")
        )
    first, *others = (file.ids for file in telling.values())
    for ids in others:
        first = first[is_in(first, ids)]
    check_agreement(column, telling, first)
    return [
        replace(file, labels=as_key(file.columns[column], column) if name in telling else None)
        for name, file in files.items()
    ]


def _column_names(file: Vectors) -> list[str]:
    """What a file tells of its items beside their vectors."""
    return [*([] if file.labels is None else ["label"]), *file.columns]


def _check_dimensions(old: Vectors, new: Vectors) -> None:
    """Raises where a new query cannot be compared with an old gallery vector."""
    dim = new.compatible_dim or new.dim
    if dim != old.dim:
        raise SpaceMismatch(
            f"wanted new query vectors of the old {old.dim} dimensions, but they have {dim}. Fit a "
            f"head that maps them into the old space (`nobackfill fit`) and evaluate what it makes "
            f"of them (`nobackfill embed HEAD`), or train the new model with `embedding_dim = "
            f"{old.dim}`, or, where its method maps queries, make these by `nobackfill embed "
            f"--side query` and pass them by --query-for-old."
        )


def _check_kind_of_ids(old: Vectors, new: Vectors) -> None:
    """Raises where one file names its items by text and the other by number."""
    if old.ids.dtype.kind != new.ids.dtype.kind:
        raise DataError(
            f"wanted ids of one kind, but the old file names items like {old.ids[0].item()!r} and "
            f"the new like {new.ids[0].item()!r}. Write the same ids into both files."
        )


def roles_of(old: Vectors, new: Vectors, *, leave_one_out: bool) -> tuple[Ids, Ids]:
    """The ids of the queries and of the gallery, by the columns of the first file that has them."""
    flags = ("is_query", "is_gallery")
    roles = [
        next((f.ids[f.columns[flag]] for f in (old, new) if flag in f.columns), None)
        for flag in flags
    ]
    if not leave_one_out and any(ids is not None for ids in roles):
        queries, gallery = roles
        if queries is None or gallery is None:
            missing = flags[0] if queries is None else flags[1]
            raise DataError(
                f"wanted both columns is_query and is_gallery, or neither, but neither file has "
                f"`{missing}`. Add it, or drop the other."
            )
        return queries, gallery
    split = old.columns.get("split")
    items = old.ids if split is None else old.ids[split == "validation"]
    return items, items


def _of_modalities(
    queries: Ids, gallery: Ids, modalities: tuple[str, str], old: Vectors, new: Vectors
) -> tuple[Ids, Ids]:
    """Those of the queries and of the gallery that are texts, images, or what is asked for."""
    file = next((f for f in (old, new) if "modality" in f.columns), None)
    if file is None:
        if is_in(queries, gallery).any():
            raise DataError(
                f"wanted queries of the modality {modalities[0]} and a gallery of {modalities[1]}, "
                f"but queries are in the gallery too and no file has a column `modality`. Add it, "
                f"or mark who asks by is_query and who is searched by is_gallery."
            )
        return queries, gallery
    kind = file.columns["modality"]
    of_query, of_gallery = (file.ids[kind == modality] for modality in modalities)
    return queries[is_in(queries, of_query)], gallery[is_in(gallery, of_gallery)]


def _in_both(
    queries: Ids,
    gallery: Ids,
    old: Vectors,
    new_query: Vectors,
    new_gallery: Vectors,
    *,
    strangers: Ids,
    intersect: bool,
) -> tuple[Ids, Ids, tuple[str, ...]]:
    """The queries and gallery items that both files have, or an error about those that do not."""
    no_new_gallery = not is_in(gallery, new_gallery.ids).any()
    alone = {
        "queries that the old file lacks": queries[~is_in(queries, old.ids)],
        "queries that the new file lacks": queries[~is_in(queries, new_query.ids)],
        "gallery items that the old file lacks": gallery[~is_in(gallery, old.ids)],
        "gallery items that the new file lacks": gallery[~is_in(gallery, new_gallery.ids)],
        "items that only the new file has": strangers,
    }
    notes = []
    if no_new_gallery:
        alone.pop("gallery items that the new file lacks")
        notes.append("new/new was not measured: the new file has none of the gallery")
    found = [
        f"{len(ids)} {what} (first: {', '.join(map(repr, ids[:3].tolist()))})"
        for what, ids in alone.items()
        if len(ids)
    ]
    if found and not intersect:
        raise DataError(
            f"wanted two files about the same items, but found {'; '.join(found)}. Embed the same "
            f"items with both models, or leave these out with --intersect."
        )
    notes += [f"left out: {one}" for one in found]
    left_out = np.concatenate(list(alone.values()))
    return (
        queries[~is_in(queries, left_out)],
        gallery[~is_in(gallery, left_out)],
        tuple(notes),
    )


def _strangers(new: Vectors, old: Vectors, modalities: tuple[str, str] | None) -> Ids:
    """The ids that only the new file has, of items that would ask or be searched."""
    takes_part = np.ones(len(new), dtype=bool)
    if "is_query" in new.columns and "is_gallery" in new.columns:
        takes_part = new.columns["is_query"] | new.columns["is_gallery"]
    elif "split" in new.columns:
        takes_part = new.columns["split"] == "validation"
    if modalities is not None and "modality" in new.columns:
        takes_part = takes_part & np.isin(new.columns["modality"], modalities)
    strangers: Ids = new.ids[takes_part & ~is_in(new.ids, old.ids)]
    return strangers


def _labels(old: Vectors, new: Vectors) -> tuple[Ids, Ids]:
    """Ids and labels of the old file, or of the new if the old has none; both must agree."""
    if old.labels is None and new.labels is None:
        raise DataError(
            "wanted labels, but neither file has a column `label`. Add one to either file: it says "
            "which items count as found; or name a column that does (`evaluate --group`). A .npy "
            "has no columns: write .npz or .parquet, or list what counts as found in a file of its "
            "own (--ground-truth)."
        )
    shared = old.ids[is_in(old.ids, new.ids)]
    check_agreement("label", {"the old file": old, "the new file": new}, shared)
    file = new if old.labels is None else old
    return file.ids, np.asarray(file.labels)


def _cameras(old: Vectors, new: Vectors) -> tuple[Ids, Ids]:
    """Ids and cameras of the first file that has them."""
    for file in (old, new):
        if "camera" in file.columns:
            return file.ids, file.columns["camera"]
    raise DataError(
        "wanted a column `camera`, which this protocol needs, but neither file has one. Add it, or "
        "choose the protocol `plain`."
    )


def _numbers(known: tuple[Ids, Ids], *wanted: Ids) -> tuple[Int[Tensor, " _"], ...]:
    """The values of each group of ids, as numbers that are equal where the values are."""
    ids, values = known
    numbers = torch.from_numpy(np.unique(values, return_inverse=True)[1].astype(np.int64))
    return tuple(numbers[torch.from_numpy(rows_of_ids(some, ids))] for some in wanted)


def _check_asked(ground_truth: GroundTruth, queries: Ids) -> None:
    """Raises where a ground truth lists something, but for none of the queries."""
    listed = ground_truth.relevant
    if listed and not any(str(query) in listed for query in queries.tolist()):
        raise DataError(
            f"wanted queries that have something to find, but the ground truth lists nothing for "
            f"any of the {len(queries):,}: it names queries like {next(iter(listed))!r}, the files "
            f"like {str(queries[0])!r}. Write the ids of the files into it."
        )


def _listed(
    lists: Mapping[str, Sequence[str]], queries: Ids, gallery: Ids, *, must_be_there: bool
) -> list[list[int]]:
    """For each query, the places in the gallery of what a list names for it."""
    place = {str(item): row for row, item in enumerate(gallery.tolist())}
    found = []
    for query in queries.tolist():
        wanted = lists.get(str(query), ())
        if must_be_there and (lost := [item for item in wanted if item not in place]):
            raise DataError(
                f"wanted everything that the ground truth lists in the gallery, but of query "
                f"{query!r} {len(lost)} items are not, the first being {lost[0]!r}. Embed them "
                f"too, or leave them out with --intersect."
            )
        found.append([place[item] for item in wanted if item in place])
    return found


def _marked(lists: Sequence[Sequence[int]], width: int) -> Bool[Tensor, "lists width"]:
    """True at each place that a list names."""
    marks = torch.zeros(len(lists), width, dtype=torch.bool)
    for row, places in enumerate(lists):
        marks[row, list(places)] = True
    return marks


def _places(queries: Ids, gallery: Ids) -> list[list[int]] | None:
    """For each query, its own place in the gallery, if it has one."""
    if not is_in(queries, gallery).any():
        return None
    place = {item: row for row, item in enumerate(gallery.tolist())}
    return [[place[item]] if item in place else [] for item in queries.tolist()]
