"""Any number of files of vectors, matched by id: one search that all of them take part in."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from nobackfill.data.listing import GroundTruth
from nobackfill.errors import DataError
from nobackfill.evaluation.protocols import Protocol
from nobackfill.evaluation.search_plan import SearchPlan, check_agreement, columns_of, plan_search
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
    """Decides from the columns of all files who asks and who is searched, as `plan_search` of two.

    What a column says is what the first file says that has it. Labels must agree.

    Args:
        files: By the names that errors call them, the oldest first.
        protocol: How the items are searched.
        covering: Files that must have these items too, but have no say in which these are.
        intersect: Whether items that a file lacks are left out instead of being an error.
        ground_truth: What each query shall find, where labels do not say it.
    """
    every = {**files, **(covering or {})}
    check_kind_of_ids(every)
    speaking = list(files.values())
    queries, gallery = _roles(speaking, protocol)
    notes = _tell_lacking(every, queries, gallery, _strangers(speaking), intersect=intersect)
    queries, gallery = (_in_all(ids, every) for ids in (queries, gallery))
    if len(queries) == 0 or len(gallery) == 0:
        raise DataError(
            f"wanted queries and a gallery that all files have, but {len(queries)} queries and "
            f"{len(gallery)} gallery items are left. Check that all files name their items alike."
        )
    oldest = speaking[0].ids
    items: Ids = oldest[is_in(oldest, np.concatenate([queries, gallery]))]
    known = columns_of(speaking, items)
    if ground_truth is None:
        _check_labels(files, items)
    columns = {"is_query": is_in(items, queries), "is_gallery": is_in(items, gallery)}
    if "camera" in known:
        columns["camera"] = known["camera"]
    told = _without_vectors(items, known.get("label"), columns)
    plan = plan_search(
        told,
        told,
        told,
        same_camera=protocol.same_camera,
        intersect=intersect,
        ground_truth=ground_truth,
    )
    return replace(plan, notes=(*notes, *plan.notes))


def check_kind_of_ids(files: Mapping[str, Vectors]) -> None:
    """Raises where one file names its items by text and another by number."""
    (first, one), *rest = files.items()
    for name, file in rest:
        if file.ids.dtype.kind != one.ids.dtype.kind:
            raise DataError(
                f"wanted ids of one kind, but `{first}` names items like {one.ids[0].item()!r} and "
                f"`{name}` like {file.ids[0].item()!r}. Write the same ids into all files."
            )


def _roles(files: Sequence[Vectors], protocol: Protocol) -> tuple[Ids, Ids]:
    """Which items of the oldest file ask, and which are searched."""
    ids = files[0].ids
    columns = {}
    for name in ("is_query", "is_gallery", "modality"):
        if (file := next((one for one in files if name in one.columns), None)) is not None:
            columns[name] = _look_up(file, name, ids)
    if "split" in files[0].columns:
        columns["split"] = files[0].columns["split"]
    told = _without_vectors(ids, None, columns)
    plan = plan_search(
        told,
        told,
        told,
        leave_one_out=protocol.leave_one_out,
        modalities=protocol.modalities,
        ground_truth=GroundTruth({}),  # labels do not matter yet
    )
    return plan.query_ids, plan.gallery_ids


def _look_up(file: Vectors, column: str, ids: Ids) -> NDArray[Any]:
    """What a file tells of some items; False or empty where it lacks one."""
    known = is_in(ids, file.ids)
    found = np.zeros(len(ids), dtype=file.columns[column].dtype)
    found[known] = columns_of([file], ids[known])[column]
    return found


def _without_vectors(
    ids: Ids, labels: NDArray[Any] | None, columns: Mapping[str, NDArray[Any]]
) -> Vectors:
    """What is told of some items, whatever their vectors are."""
    return Vectors(ids, torch.ones(len(ids), 1), labels, columns=columns)


def _strangers(files: Sequence[Vectors]) -> Ids:
    """The ids that would ask or be searched in some file, but are not in the oldest."""
    oldest, *rest = files
    found = [oldest.ids[:0]]
    for file in rest:
        takes_part = np.ones(len(file), dtype=bool)
        if "is_query" in file.columns and "is_gallery" in file.columns:
            takes_part = file.columns["is_query"] | file.columns["is_gallery"]
        elif "split" in file.columns:
            takes_part = file.columns["split"] == "validation"
        found.append(file.ids[takes_part & ~is_in(file.ids, oldest.ids)])
    together: Ids = np.concatenate(found)
    return together[np.sort(np.unique(together, return_index=True)[1])]


def _tell_lacking(
    files: Mapping[str, Vectors], queries: Ids, gallery: Ids, strangers: Ids, *, intersect: bool
) -> tuple[str, ...]:
    """Raises where a file lacks items, or, if these may be left out, notes how many."""
    wanted = {"queries": queries, "gallery items": gallery}
    if np.array_equal(queries, gallery):
        wanted = {"items": queries}
    wanted["items that other files search"] = strangers
    lacking = [
        f"`{name}` lacks {len(lost):,} {what} ({_first_three(lost)})"
        for name, file in files.items()
        for what, ids in wanted.items()
        if len(lost := ids[~is_in(ids, file.ids)])
    ]
    if lacking and not intersect:
        raise DataError(
            f"wanted files about the same items, but {'; '.join(lacking)}. Embed the same items "
            f"with every model, or leave these out with --intersect."
        )
    return tuple(f"left out: {one}" for one in lacking)


def _first_three(ids: Ids) -> str:
    """The first three ids, and whether there are more."""
    return ", ".join([*map(repr, ids[:3].tolist()), *(["…"] if len(ids) > 3 else [])])


def _in_all(ids: Ids, files: Mapping[str, Vectors]) -> Ids:
    """Those that every file has."""
    kept = np.ones(len(ids), dtype=bool)
    for file in files.values():
        kept &= is_in(ids, file.ids)
    return ids[kept]


def _check_labels(files: Mapping[str, Vectors], items: Ids) -> None:
    """Raises where no file has labels, or two give an item different ones."""
    if all(file.labels is None for file in files.values()):
        raise DataError(
            "wanted labels, but no file has a column `label`. Add one to any file: it says which "
            "items count as found."
        )
    check_agreement("label", {f"`{name}`": file for name, file in files.items()}, items)
