"""Reads vectors and columns of several files by item id, and checks that the files agree."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from nobackfill.errors import DataError
from nobackfill.vectors import Vectors
from nobackfill.vectors.column_names import require_label
from nobackfill.vectors.columns import as_text
from nobackfill.vectors.contents import MEANINGFUL
from nobackfill.vectors.ids import Ids, is_in, rows_of_ids
from nobackfill.vectors.split_column import is_training

MOST = 10  # columns in a note


def rows_of(vectors: Vectors, ids: Ids) -> Float[Tensor, "rows dim"]:
    """Returns the vectors of `ids`, in their order. Adjacent rows are returned without a copy."""
    rows = rows_of_ids(ids, vectors.ids)
    if len(rows) and (rows[-1] - rows[0] == len(rows) - 1) and (np.diff(rows) == 1).all():
        return vectors.vectors[int(rows[0]) : int(rows[-1]) + 1]
    return vectors.vectors[torch.from_numpy(rows)]


def columns_of(files: Iterable[Vectors], ids: Ids) -> dict[str, Ids]:
    """Returns every column of `ids`, `label` included, each from the first file that has it.

    Files that lack one of the ids are skipped.
    """
    columns: dict[str, Ids] = {}
    for file in files:
        if not is_in(ids, file.ids).all():
            continue
        rows = rows_of_ids(ids, file.ids)
        for name, values in _columns(file).items():
            columns.setdefault(name, values[rows])
    return columns


def _columns(file: Vectors) -> dict[str, Ids]:
    """Returns all columns of a file, `label` included."""
    return {**({} if file.labels is None else {"label": file.labels}), **file.columns}


def file_with(column: str, files: Sequence[Vectors]) -> Vectors | None:
    """Returns the first file that has a column, or None."""
    return next((file for file in files if column in file.columns), None)


def have_labels(files: Iterable[Vectors | None]) -> bool:
    """Whether any file has labels."""
    return any(file is not None and file.labels is not None for file in files)


def check_one_label(files: Iterable[Vectors]) -> None:
    """Raises if several columns of files without labels may be the labels."""
    require_label(dict.fromkeys(name for file in files for name in file.columns))


def label_hint(files: Iterable[Vectors]) -> str:
    """Names the columns of files without labels of which one may be the labels.

    Example:
        >>> label_hint([Vectors(["a"], torch.ones(1, 2), columns={"kind": ["x"]})])
        '--label may name kind'
    """
    names = dict.fromkeys(
        name
        for file in files
        for name, values in file.columns.items()
        if name not in MEANINGFUL and values.dtype.kind in "UTi"
    )
    return f"--label may name {', '.join(list(names)[:MOST])}" if names else ""


def roles_of(files: Sequence[Vectors], *, leave_one_out: bool) -> tuple[Ids, Ids]:
    """Returns the ids of the queries and of the gallery.

    The columns `is_query` and `is_gallery` of the first file that has them decide. Without them,
    or with `leave_one_out`, every item of the first file (without its training items, if it has a
    column `split`) is both.
    """
    flags = ("is_query", "is_gallery")
    holders = {flag: file_with(flag, files) for flag in flags}
    queries, gallery = (
        None if file is None else file.ids[file.columns[flag]] for flag, file in holders.items()
    )
    if not leave_one_out and (queries is not None or gallery is not None):
        if queries is None or gallery is None:
            missing = flags[0] if queries is None else flags[1]
            neither = "neither file" if len(files) == 2 else "no file"
            raise DataError(
                f"the columns is_query and is_gallery go together, but {neither} has `{missing}`. "
                f"Add it, or drop the other."
            )
        return queries, gallery
    marks = is_training(files[0])
    items = files[0].ids if marks is None else files[0].ids[~marks]
    return items, items


def restrict_to_modalities(
    queries: Ids, gallery: Ids, modalities: tuple[str, str], files: Sequence[Vectors]
) -> tuple[Ids, Ids]:
    """Returns the queries of the first modality and the gallery items of the second."""
    file = file_with("modality", files)
    if file is None:
        if is_in(queries, gallery).any():
            raise DataError(
                f"this search needs queries of the modality {modalities[0]} and a gallery of "
                f"{modalities[1]}, but queries are in the gallery too and no file has a column "
                f"`modality`. Add it, or mark queries by is_query and gallery items by is_gallery."
            )
        return queries, gallery
    kind = file.columns["modality"]
    of_query, of_gallery = (file.ids[kind == modality] for modality in modalities)
    return queries[is_in(queries, of_query)], gallery[is_in(gallery, of_gallery)]


def takes_part(file: Vectors) -> Ids:
    """Marks the items of a file that are queries or gallery items by its own columns."""
    if "is_query" in file.columns and "is_gallery" in file.columns:
        return np.asarray(file.columns["is_query"] | file.columns["is_gallery"])
    marks = is_training(file)
    return np.ones(len(file), dtype=bool) if marks is None else ~marks


def check_kind_of_ids(files: Mapping[str, Vectors]) -> None:
    """Raises if ids are text in one file and numbers in another.

    Files have a name for the error, such as "the old file".
    """
    (first, reference), *rest = files.items()
    for name, file in rest:
        if file.ids.dtype.kind != reference.ids.dtype.kind:
            raise DataError(
                f"all files need ids of one kind, but {first} names items like "
                f"{reference.ids[0].item()!r} and {name} like {file.ids[0].item()!r}. Write the "
                f"same ids into all files."
            )


def check_agreement(column: str, files: Mapping[str, Vectors]) -> None:
    """Raises if files have different values of a column, such as `label`, for the same item.

    Items that some file with the column lacks are not compared. Files have a name for the error.
    """
    holders = {
        name: (file.ids, _columns(file)[column])
        for name, file in files.items()
        if column in _columns(file)
    }
    if len(holders) < 2:
        return
    # compare the files on the items that all of them have
    shared, *others = (ids for ids, _ in holders.values())
    for ids in others:
        shared = shared[is_in(shared, ids)]
    (first, expected), *rest = (
        (name, values[rows_of_ids(shared, ids)]) for name, (ids, values) in holders.items()
    )
    for name, values in rest:
        differ = as_text(expected) != as_text(values)
        if differ.any():
            item, right, wrong = (
                part[differ][:1].tolist()[0] for part in (shared, expected, values)
            )
            what = "labels" if column == "label" else f"`{column}`"
            raise DataError(
                f"items need the same {what} in all files, but {int(differ.sum()):,} items differ: "
                f"{item!r} is {right!r:.80} in {first} and {wrong!r:.80} in {name}. Correct one "
                f"file, or drop its column `{column}`."
            )
