"""Arguments of a fit or an assessment: vectors of any form, and what relates their items."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nobackfill.core.short import Short
from nobackfill.data.pairs import as_ground_truth
from nobackfill.errors import ConfigError
from nobackfill.head.multimodal import Modality, with_modality
from nobackfill.vectors import Vectors
from nobackfill.vectors.column_names import ANY, Columns
from nobackfill.vectors.matrix import Data
from nobackfill.vectors.sides import as_sides


@dataclass(frozen=True, eq=False, repr=False)
class FitArguments(Short):
    """Vectors of both models with ids, and the supervision of a fit.

    Labels and groups of the call are labels of the vectors; those of the data are gone then.

    Attributes:
        new: New vectors.
        old: Old vectors.
        kind: Kind of supervision that was passed: "labels", "groups" or "pairs"; None for the
            labels of the data, if it has any.
        pairs: Relevant items of each query, by id.
        has_ids: Whether the ids came with the data; otherwise they are row numbers.
        notes: Notes on columns that were guessed.
        matching: Notes on how rows without ids were matched.
    """

    new: Vectors
    old: Vectors
    kind: str | None = None
    pairs: Mapping[str, Sequence[str]] | None = None
    has_ids: bool = True
    notes: tuple[str, ...] = ()
    matching: tuple[str, ...] = ()


def read_arguments(
    new: Data,
    old: Data,
    *,
    ids: Any = None,
    labels: Any = None,
    pairs: Any = None,
    groups: Any = None,
    modality: Modality | None = None,
    columns: Columns = ANY,
) -> FitArguments:
    """Reads vectors of any form with their supervision; see `as_sides`.

    Args:
        new: New vectors.
        old: Old vectors.
        ids: Id of each row of the sides that have none.
        labels: Label of each item, in place of those of the data.
        pairs: Relevant items of each query, in place of labels; see `as_ground_truth`.
        groups: Group of each item, in place of labels.
        modality: Modality of all items or of each, in place of the column `modality`.
        columns: Names of the columns of tables and files.
    """
    values = {"labels": labels, "pairs": pairs, "groups": groups}
    kinds = [kind for kind, value in values.items() if value is not None]
    if len(kinds) > 1:
        raise ConfigError(f"Pass one kind of supervision, not {' and '.join(kinds)}.")
    relevant = None if pairs is None else as_ground_truth(pairs).relevant
    read = as_sides(
        {"old": old, "new": new}, ids=ids, labels=labels, groups=groups, columns=columns
    )
    sides = read.vectors["new"], read.vectors["old"]
    if modality is not None:
        sides = with_modality(*sides, modality)
    is_file = any(isinstance(side, str | Path) for side in (new, old))
    has_ids = read.has_ids or is_file
    return FitArguments(
        *sides, next(iter(kinds), None), relevant, has_ids, read.notes, read.matching
    )
