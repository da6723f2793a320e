"""Vectors of several models, matched by id where they have ids, and otherwise by position.

Rows without ids are never matched silently: a note states the assumption, and different numbers of
rows are an error.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nobackfill.errors import ConfigError, DataError
from nobackfill.vectors import Vectors
from nobackfill.vectors.arrays import (
    Side,
    Source,
    check_label,
    key_of,
    naming,
    open_source,
    read_side,
)
from nobackfill.vectors.column_names import ANY, Columns
from nobackfill.vectors.columns import Values
from nobackfill.vectors.matrix import Data
from nobackfill.vectors.several_files import read_each


class Sides(NamedTuple):
    """Vectors of both models by argument, with matching ids."""

    vectors: dict[str, Vectors]
    notes: tuple[str, ...]  # columns that were guessed
    matching: tuple[str, ...]  # how rows without ids were matched
    has_ids: bool  # whether any side came with ids


def as_sides(
    sides: Mapping[str, Data],
    *,
    ids: Values | None = None,
    labels: Values | None = None,
    groups: Values | None = None,
    columns: Columns = ANY,
) -> Sides:
    """Reads vectors of several models, and gives rows without ids those of the other side.

    Args:
        sides: Vectors of each model by the name of the argument; `old` comes first.
        ids: Id of each row of the sides that have none.
        labels: Label of each row, in place of those of the data.
        groups: Group of each row, in place of labels.
        columns: Names of the columns of tables and files.
    """
    if labels is not None and groups is not None:
        raise ConfigError("Pass one kind of supervision, not labels and groups.")

    def read_argument(name: str, columns: Columns) -> tuple[Source, Side]:
        """Opens and reads the vectors of one argument."""
        source = open_source(sides[name], columns)
        return source, read_side(name, source, columns)

    sources, read = zip(*read_each(sides, columns, read_argument).values(), strict=True)
    check_label(columns, sources)
    has_ids = ids is not None or any(side.has_ids for side in read)
    notes = [f"`{side.name}`: {note}" for side in read for note in side.notes]
    matched, assumed = match_sides(list(read), None if ids is None else key_of(ids, "ids"))
    # Attach labels to the side whose rows they follow; a label of the data is not used.
    name, values = ("labels", labels) if groups is None else ("groups", groups)
    if values is not None:
        matched = _labelled(matched, key_of(values, name), name)
    vectors = _on_one_device({side.name: side.vectors for side in matched})
    return Sides(vectors, tuple(notes), tuple(assumed), has_ids)


def match_sides(read: list[Side], ids: NDArray[Any] | None = None) -> tuple[list[Side], list[str]]:
    """Gives ids to rows without: those of `ids`, of a side that has some, or row numbers."""
    bare, named = ([side for side in read if side.has_ids is has] for has in (False, True))
    if ids is not None:
        if not bare:
            raise ConfigError(
                f"`ids` names rows that have no ids, but {_listed(named)} have ids of their own. "
                f"Leave `ids` out."
            )
        for side in bare:
            if len(side.vectors) != len(ids):
                raise DataError(
                    f"There are {len(ids):,} ids for {len(side.vectors):,} rows of `{side.name}`. "
                    f"Pass one for each."
                )
        return [_identified(side, ids) if side in bare else side for side in read], []
    if not bare:
        return read, []
    # Without ids, every row must have a partner.
    reference = (named or bare)[0].vectors.ids
    for side in (*bare, *named):
        if len(side.vectors) != len(reference):
            own = named[0].name if named else bare[0].name
            raise DataError(
                f"`{own}` has {len(reference):,} rows and `{side.name}` has "
                f"{len(side.vectors):,}, and {_listed(bare)} {_have(bare)} no ids, so a missing "
                f"row would match all later ones wrongly. Pass rows of the same items, or `ids=`."
            )
    if any(not np.array_equal(side.vectors.ids, reference) for side in named):
        raise DataError(
            f"{_listed(bare)} {_have(bare)} no ids, but {_listed(named)} have the same items in "
            f"different orders. Pass `ids=`, or a table with a column of ids."
        )
    matched = [_identified(side, reference) if side in bare else side for side in read]
    if len(read) == 1:
        return matched, []
    others = f" with the ids of {_listed(named)}" if named else ""
    return matched, [f"rows are matched by position{others}: {_listed(bare)} {_have(bare)} no ids"]


def _labelled(sides: list[Side], labels: NDArray[Any], name: str) -> list[Side]:
    """Attaches labels to the first side whose rows they follow, and removes those of the others."""
    old_and_new = [side for side in sides if side.name in ("old", "new")] or sides
    fitting = [side for side in old_and_new if len(side.vectors) == len(labels)]
    if not fitting:
        rows = " and ".join(f"{len(side.vectors):,} of `{side.name}`" for side in old_and_new)
        raise DataError(f"There are {len(labels):,} {name} for {rows} rows. Pass one for each row.")
    first = fitting[0].vectors.ids
    if any(not np.array_equal(side.vectors.ids, first) for side in fitting):
        raise DataError(
            f"The order of {name} is ambiguous: {_listed(fitting)} have different items, or a "
            f"different order. Pass tables or Vectors with labels, or bring both into one order."
        )
    return [
        replace(side, vectors=replace(side.vectors, labels=labels if side is fitting[0] else None))
        for side in sides
    ]


def _identified(side: Side, ids: NDArray[Any]) -> Side:
    """Returns a side with ids for its rows."""
    with naming(side.name):
        return replace(side, vectors=replace(side.vectors, ids=ids))


def _listed(sides: list[Side]) -> str:
    """Returns the names of the arguments."""
    return " and ".join(f"`{side.name}`" for side in sides)


def _have(sides: list[Side]) -> str:
    """Returns the verb for these arguments."""
    return "has" if len(sides) == 1 else "have"


def _on_one_device(vectors: dict[str, Vectors]) -> dict[str, Vectors]:
    """Moves vectors of several devices to the CPU; those of one device stay there."""
    if len({side.vectors.device for side in vectors.values()}) == 1:
        return vectors
    return {name: replace(side, vectors=side.vectors.cpu()) for name, side in vectors.items()}
