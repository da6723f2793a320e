"""Reads what a head is fitted on: two files of vectors, and what belongs together."""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nobackfill.core.config import suggest
from nobackfill.data.ground_truth import read_ground_truth
from nobackfill.errors import ConfigError, DataError
from nobackfill.evaluation.file_columns import check_agreement, columns_of
from nobackfill.head.inputs import common_ids, partner_notes
from nobackfill.head.multimodal import COLUMN
from nobackfill.vectors import Vectors, load_vectors


@dataclass(frozen=True, eq=False)
class ForFit:
    """What `CompatibleHead.fit` takes.

    Attributes:
        new: New vectors of the items to fit on.
        old: Old vectors of the same items, in the same order.
        labels: Their classes; None where other supervision, or none, is given.
        groups: What each is a part of, likewise.
        pairs: Of each query what is relevant to it, likewise.
        modality: Of each item, where a file tells it and it was asked for.
        notes: What a reader should know of the files.
    """

    new: Vectors
    old: Vectors
    labels: NDArray[Any] | None = None
    groups: NDArray[Any] | None = None
    pairs: Mapping[str, Sequence[str]] | None = None
    modality: NDArray[Any] | None = None
    notes: tuple[str, ...] = ()


def read_for_fit(
    old: Path,
    new: Path,
    *,
    label: str = "label",
    pairs: Path | None = None,
    group: str | None = None,
    modality: str | None = None,
    only_training: bool = True,
) -> ForFit:
    """Reads both files, and from them or a third what belongs together.

    Where a file has the column `split`, only its training items are taken: the others are to be
    searched. Of pairs, those that name others are left out, too. A column that both files have and
    that is used must say the same in both.

    Args:
        old: The file of old vectors.
        new: The file of new vectors.
        label: The column of classes; where no file has it and it was not asked for, none are used.
        pairs: A file of lines such as `{"query": "a", "relevant": ["b"]}`, or a table with the
            columns `query` and `relevant`.
        group: A column in place of labels.
        modality: The column of modalities; where no file has `modality`, none are used.
        only_training: Whether items of other splits are left out.
    """
    if pairs is not None and group is not None:
        raise ConfigError("wanted one kind of supervision, but got --pairs and --group.")
    if label != "label" and (pairs is not None or group is not None):
        other = "--pairs" if group is None else "--group"
        raise ConfigError(f"wanted one kind of supervision, but got --label and {other}.")
    files = load_vectors(old), load_vectors(new)
    check_rows_match((old, new), files)
    ids = all_ids = common_ids(files[1], files[0])
    notes = partner_notes(*files, ids, only_training=only_training)
    known = columns_of(files, ids)
    if only_training and "split" in known and (known["split"] == "train").any():
        ids = ids[known["split"] == "train"]
        known = columns_of(files, ids)
    sides = [_selected(file, ids) for file in files]
    named = {"the old file": files[0], "the new file": files[1]}
    kinds = None
    if modality is not None and (modality in known or modality != COLUMN):
        kinds = _column(modality, known)
        check_agreement(modality, named, ids)
    if pairs is not None:
        listed = read_ground_truth(pairs).relevant
        elsewhere = set(map(str, all_ids.tolist())) - set(map(str, ids.tolist()))
        linked = without(listed, elsewhere)
        return ForFit(sides[1], sides[0], pairs=linked, modality=kinds, notes=notes)
    column = group or label
    if column not in known and group is None and label == "label":
        return ForFit(sides[1], sides[0], modality=kinds, notes=notes)
    values = _column(column, known)
    check_agreement(column, named, all_ids)
    if group is not None:
        return ForFit(sides[1], sides[0], groups=values, modality=kinds, notes=notes)
    return ForFit(sides[1], sides[0], labels=values, modality=kinds, notes=notes)


def check_rows_match(paths: Sequence[Path], files: Sequence[Vectors]) -> None:
    """Refuses files of other lengths whose items are told by their row alone, as in .npy.

    Args:
        paths: Of the files.
        files: What is in them.
    """
    bare = [path for path in paths if path.suffix.lower() == ".npy"]
    rows = [len(file) for file in files]
    by_row = all(np.array_equal(file.ids, np.arange(len(file))) for file in files)
    if bare and by_row and rows[0] != rows[1]:
        raise DataError(
            f"wanted the same items in both files, as only its row tells an item in "
            f"{' and '.join(str(path) for path in bare)}, but there are {rows[0]:,} old and "
            f"{rows[1]:,} new rows: one that is missing in the middle would pair all later ones "
            f"wrongly. Embed the same items by both models, or write files with ids (.npz, "
            f".parquet)."
        )


def modality_of(file: Vectors, column: str) -> NDArray[Any] | None:
    """What a column tells of modalities; None for the one that a head looks for by itself."""
    return None if column == COLUMN else _column(column, file.columns, "the file")


def without(
    pairs: Mapping[str, Sequence[str]], left_out: AbstractSet[str]
) -> dict[str, Sequence[str]]:
    """Pairs that name none of some items.

    Example:
        >>> without({"a": ["b", "c"], "c": ["d"]}, {"c"})
        {'a': ['b']}
    """
    return {
        query: [item for item in relevant if item not in left_out]
        for query, relevant in pairs.items()
        if query not in left_out
    }


def _column(
    name: str, known: Mapping[str, NDArray[Any]], where: str = "either file"
) -> NDArray[Any]:
    if name not in known:
        raise ConfigError(f"no column `{name}` in {where}. {suggest(name, known)}")
    return known[name]


def _selected(file: Vectors, ids: NDArray[Any]) -> Vectors:
    """The items of a file that have some ids, in their order; the file itself where it is that."""
    if np.array_equal(file.ids, ids):
        return file
    row = {item: place for place, item in enumerate(file.ids.tolist())}
    return file.select(np.array([row[item] for item in ids.tolist()], dtype=np.int64))
