"""Plans one search over any number of vector files, matched by id."""

from collections.abc import Mapping, Sequence

import numpy as np

from nobackfill.data.listing import GroundTruth
from nobackfill.errors import DataError
from nobackfill.evaluation.file_columns import (
    check_agreement,
    check_kind_of_ids,
    columns_of,
    restrict_to_modalities,
    roles_of,
    takes_part,
)
from nobackfill.evaluation.protocols import Protocol
from nobackfill.evaluation.search_plan import SearchPlan, cameras_of, check_not_empty, make_plan
from nobackfill.vectors import Vectors
from nobackfill.vectors.ids import Ids, is_in


def plan_common_search(
    files: Mapping[str, Vectors],
    protocol: Protocol,
    *,
    covering: Mapping[str, Vectors] | None = None,
    intersect: bool = False,
    ground_truth: GroundTruth | None = None,
) -> SearchPlan:
    """Plans a search over the items that all files have.

    A column is read from the first file that has it. Labels must agree.

    Args:
        files: Files by their name in errors, the oldest first.
        protocol: Rules of the search.
        covering: Files that must have the same items, but whose columns are not read.
        intersect: Whether to leave out items that a file lacks, instead of raising an error.
        ground_truth: Relevant items of each query, in place of labels.
    """
    every = {**files, **(covering or {})}
    check_kind_of_ids({f"`{name}`": file for name, file in every.items()})
    models = list(files.values())
    # choose the queries and gallery items that every file has
    queries, gallery = _roles(models, protocol)
    notes = _check_lacking(every, queries, gallery, _not_in_oldest(models), intersect=intersect)
    queries, gallery = (_in_all(ids, every) for ids in (queries, gallery))
    check_not_empty(queries, gallery, "all files use the same ids")
    # look up their labels and cameras
    oldest = models[0].ids
    items: Ids = oldest[is_in(oldest, np.concatenate([queries, gallery]))]
    columns = columns_of(models, items)
    labels = None
    if ground_truth is None:
        _check_labels(files, items)
        labels = items, columns["label"]
    cameras = None
    if not protocol.same_camera:
        cameras = (items, columns["camera"]) if "camera" in columns else cameras_of(())
    return make_plan(
        queries,
        gallery,
        labels=labels,
        cameras=cameras,
        ground_truth=ground_truth,
        intersect=intersect,
        notes=notes,
    )


def _roles(files: Sequence[Vectors], protocol: Protocol) -> tuple[Ids, Ids]:
    """Queries and gallery items of the oldest file, in its order."""
    queries, gallery = roles_of(files, leave_one_out=protocol.leave_one_out)
    if protocol.modalities is not None:
        queries, gallery = restrict_to_modalities(queries, gallery, protocol.modalities, files)
    ids = files[0].ids
    return ids[is_in(ids, queries)], ids[is_in(ids, gallery)]


def _not_in_oldest(files: Sequence[Vectors]) -> Ids:
    """Ids of queries and gallery items of any file that are not in the oldest."""
    oldest, *rest = files
    missing = [file.ids[takes_part(file) & ~is_in(file.ids, oldest.ids)] for file in rest]
    ids: Ids = np.concatenate([oldest.ids[:0], *missing])
    return ids[np.sort(np.unique(ids, return_index=True)[1])]


def _check_lacking(
    files: Mapping[str, Vectors], queries: Ids, gallery: Ids, others: Ids, *, intersect: bool
) -> tuple[str, ...]:
    """Raises if a file lacks items; with `intersect` returns notes of how many instead."""
    required = {"queries": queries, "gallery items": gallery}
    if np.array_equal(queries, gallery):
        required = {"items": queries}
    required["items that other files search"] = others
    lacking = [
        f"`{name}` lacks {len(missing):,} {what} ({_first_three(missing)})"
        for name, file in files.items()
        for what, ids in required.items()
        if len(missing := ids[~is_in(ids, file.ids)])
    ]
    if lacking and not intersect:
        raise DataError(
            f"all files must have the same items, but {'; '.join(lacking)}. Embed the same items "
            f"with every model, or leave these out with --intersect."
        )
    return tuple(f"left out: {note}" for note in lacking)


def _first_three(ids: Ids) -> str:
    """The first three ids, and "…" if there are more."""
    return ", ".join([*map(repr, ids[:3].tolist()), *(["…"] if len(ids) > 3 else [])])


def _in_all(ids: Ids, files: Mapping[str, Vectors]) -> Ids:
    """The ids that every file has."""
    kept = np.ones(len(ids), dtype=bool)
    for file in files.values():
        kept &= is_in(ids, file.ids)
    return ids[kept]


def _check_labels(files: Mapping[str, Vectors], items: Ids) -> None:
    """Raises if no file has labels, or if two files disagree."""
    if all(file.labels is None for file in files.values()):
        raise DataError(
            "labels decide which items are relevant, but no file has a column `label`. Add one to "
            "any file."
        )
    check_agreement("label", {f"`{name}`": file for name, file in files.items()}, items)
