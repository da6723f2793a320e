"""Inputs of a fit: vectors of both models from arrays or files, matched by row or by id."""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from nobackfill.core.short import Short
from nobackfill.core.suggest import suggest
from nobackfill.data.ground_truth import read_ground_truth
from nobackfill.errors import ConfigError, DataError
from nobackfill.evaluation.file_columns import (
    check_agreement,
    check_kind_of_ids,
    columns_of,
    rows_of,
)
from nobackfill.evaluation.swapped import swap_notes
from nobackfill.vectors import Vectors
from nobackfill.vectors.column_names import Columns
from nobackfill.vectors.ids import is_in, rows_of_ids
from nobackfill.vectors.several_files import Files, read_files
from nobackfill.vectors.split_column import is_training

MODALITY = "modality"  # column of modalities


def match_items(
    new: Vectors, old: Vectors, *, use_labels: bool = True
) -> tuple[NDArray[Any], Float[Tensor, "items new_dim"], Float[Tensor, "items old_dim"], Any]:
    """Returns ids, new vectors, old vectors and labels of the items that both sides have.

    The order is that of the old file. Vectors are not copied if both files have the same items in
    the same order.
    Labels must agree.
    """
    ids, labels = common_ids(new, old), None
    if use_labels:
        check_agreement("label", named(old, new))
        labels = columns_of((old, new), ids).get("label")
    return ids, rows_of(new, ids), rows_of(old, ids), labels


def named(old: Vectors, new: Vectors) -> dict[str, Vectors]:
    """Returns both files by their name in errors."""
    return {"the old file": old, "the new file": new}


def common_ids(new: Vectors, old: Vectors) -> NDArray[Any]:
    """Returns the ids that both files have, in the order of the old file."""
    check_kind_of_ids(named(old, new))
    ids: NDArray[Any] = old.ids[is_in(old.ids, new.ids)]
    if len(ids) == 0:
        raise DataError(
            f"The files have no item in common: none of {len(old)} old and {len(new)} new ids is "
            f"in both. Check that both files use the same ids."
        )
    return ids


def partner_notes(old: Vectors, new: Vectors, *, only_training: bool = True) -> tuple[str, ...]:
    """Returns a note for each file with items, to fit on or any, that the other file lacks.

    Example:
        >>> import torch
        >>> old, new = Vectors(["a", "b", "c"], torch.eye(3)), Vectors(["b"], torch.ones(1, 2))
        >>> partner_notes(old, new)
        ("2 of 3 items of the old file are not in the new one and are not used (first: 'a', 'c')",)
    """
    notes: list[str] = []
    ids = common_ids(new, old)
    for file, name, other in ((old, "old", "new"), (new, "new", "old")):
        marks = is_training(file) if only_training else None
        file_ids = file.ids if marks is None else file.ids[marks]
        if len(unmatched := file_ids[~is_in(file_ids, ids)]):
            first = ", ".join(map(repr, unmatched[:3].tolist()))
            notes.append(
                f"{len(unmatched):,} of {len(file_ids):,} items of the {name} file are not in the "
                f"{other} one and are not used (first: {first})"
            )
    return tuple(notes)


def space_fingerprint(vectors: Vectors) -> str | None:
    """Returns the fingerprint of the vectors' space, if known."""
    return vectors.space.fingerprint if vectors.space else None


def check_complete(what: str, values: Sequence[Any]) -> None:
    """Raises DataError if a value is missing: None or NaN."""
    missing = [row for row, value in enumerate(values) if value is None or value != value]
    if missing:
        raise DataError(
            f"The {what} of {len(missing)} of {len(values)} items are missing, the first in row "
            f"{missing[0]}. Add them, or drop these items."
        )


def check_order(new: Vectors, old: Vectors, name: str) -> None:
    """Raises DataError if a list comes with two sides whose items or order differ."""
    if not np.array_equal(new.ids, old.ids):
        raise DataError(
            f"The order of {name} is ambiguous: new and old vectors have different items, or a "
            f"different order. Put {name} into the Vectors, or `select` the same rows of both."
        )


@dataclass(frozen=True, eq=False, repr=False)
class FitInputs(Short):
    """Arguments of `CompatibleHead.fit`, read from files."""

    new: Vectors  # new vectors of the items to fit on
    old: Vectors  # old vectors of the same items, in the same order
    labels: NDArray[Any] | None = None  # class of each item; None with other supervision or none
    groups: NDArray[Any] | None = None  # group of each item; None with other supervision or none
    # relevant items of each query; None with other supervision or none
    pairs: Mapping[str, Sequence[str]] | None = None
    modality: NDArray[Any] | None = None  # modality of each item, if a column was requested
    notes: tuple[str, ...] = ()  # notes on the files
    remarks: tuple[str, ...] = ()  # what was guessed or left out in reading


def read_for_fit(
    old: Path,
    new: Path,
    *,
    label: str = "label",
    pairs: Path | None = None,
    group: str | None = None,
    modality: str | None = None,
    only_training: bool = True,
    id: str | None = None,
    vector: str | None = None,
    drop_invalid: bool = False,
) -> FitInputs:
    """Reads the items that two files share, and their supervision.

    With `only_training`, notes count training items alone. A used column must agree where both
    files have it. The default columns `label` and `modality` may be missing. `id`, `vector` and
    `drop_invalid` are those of `load_vectors`. A file of pairs has lines such as
    `{"query": "a", "relevant": ["b"]}`, or is a table with these columns.
    """
    if pairs is not None and group is not None:
        raise ConfigError("--pairs and --group exclude each other. Pass one kind of supervision.")
    if label != "label" and (pairs is not None or group is not None):
        other = "--pairs" if group is None else "--group"
        raise ConfigError(f"--label and {other} exclude each other. Pass one kind of supervision.")
    # Match the items of both files.
    column = group or label
    named_columns = Columns(id, vector, None if column == "label" else column)
    read = read_files({"old": old, "new": new}, named_columns, drop_invalid=drop_invalid)
    files = read.vectors["old"], read.vectors["new"]
    check_rows_match({"old": old, "new": new}, read)
    ids = common_ids(files[1], files[0])
    notes = (*swap_notes(*files), *partner_notes(*files, only_training=only_training))
    columns = columns_of(files, ids)
    old_side, new_side = (
        file if np.array_equal(file.ids, ids) else file.select(rows_of_ids(ids, file.ids))
        for file in files
    )
    # Read modalities.
    kinds = None
    if modality is not None and (modality in columns or modality != MODALITY):
        kinds = _column(modality, columns)
        check_agreement(modality, named(old_side, new_side))
    # Read supervision.
    supervision: dict[str, Any] = {}
    if pairs is not None:
        supervision["pairs"] = read_ground_truth(pairs).relevant
    elif column in columns or group is not None or label != "label":
        supervision["labels" if group is None else "groups"] = _column(column, columns)
        check_agreement(column, named(*files))
    return FitInputs(
        new_side, old_side, modality=kinds, notes=notes, remarks=read.remarks, **supervision
    )


def check_rows_match(paths: Mapping[str, Path], read: Files) -> None:
    """Raises DataError if files without ids, such as .npy, have different numbers of rows."""
    bare = [path for name, path in paths.items() if name in read.without_ids]
    files = [read.vectors[name] for name in paths]
    rows = [len(file) for file in files]
    by_row = all(np.array_equal(file.ids, np.arange(len(file))) for file in files)
    if bare and by_row and rows[0] != rows[1]:
        raise DataError(
            f"The files have {rows[0]:,} old and {rows[1]:,} new rows, and items without ids are "
            f"matched by row in {' and '.join(str(path) for path in bare)}: a missing row would "
            f"match all later ones wrongly. Embed the same items with both models, or write files "
            f"with ids (.npz, .parquet)."
        )


def modality_of(file: Vectors, column: str) -> NDArray[Any] | None:
    """Returns a column of modalities; None for `modality`, which a head reads by itself."""
    return None if column == MODALITY else _column(column, file.columns, "the file")


def drop_pairs(
    pairs: Mapping[str, Sequence[str]], items: AbstractSet[str]
) -> dict[str, Sequence[str]]:
    """Returns the pairs without those of the items.

    Example:
        >>> drop_pairs({"a": ["b", "c"], "c": ["d"]}, {"c"})
        {'a': ['b']}
    """
    return {
        query: [item for item in relevant if item not in items]
        for query, relevant in pairs.items()
        if query not in items
    }


def _column(
    name: str, columns: Mapping[str, NDArray[Any]], where: str = "either file"
) -> NDArray[Any]:
    if name not in columns:
        raise ConfigError(f"no column `{name}` in {where}. {suggest(name, columns)}")
    return columns[name]
