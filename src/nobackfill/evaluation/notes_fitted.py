"""How many of those that ask or are searched a head was fitted on: it knows them too well."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nobackfill.errors import DataError
from nobackfill.vectors import Vectors
from nobackfill.vectors.contents import FITTED
from nobackfill.vectors.ids import is_in

REMEDY = "with a column `split`, or on other classes than those you ask with"


@dataclass(frozen=True)
class Overlap:
    """How many items of a search a head was fitted on.

    Attributes:
        queries: So many of those that ask.
        num_queries: How many ask.
        gallery: So many of those that are searched.
        num_gallery: How many are searched.
    """

    queries: int
    num_queries: int
    gallery: int
    num_gallery: int


def fitted_overlap(
    files: Iterable[Vectors], query_ids: NDArray[Any], gallery_ids: NDArray[Any]
) -> Overlap | None:
    """Counts the items of a search that a head was fitted on; None where no file tells.

    Args:
        files: New vectors, such as a head makes: a column `fitted` of theirs tells it.
        query_ids: Of those that ask.
        gallery_ids: Of those that are searched.

    Example:
        >>> import torch
        >>> new = Vectors(["a", "b"], torch.eye(2), columns={"fitted": [True, False]})
        >>> fitted_overlap([new], np.array(["b"]), np.array(["a", "c"]))
        Overlap(queries=0, num_queries=1, gallery=1, num_gallery=2)
    """
    told = [
        file.ids[file.columns[FITTED]]
        for file in files
        if FITTED in file.columns and file.columns[FITTED].dtype.kind == "b"
    ]
    if not told:
        return None
    fitted = np.concatenate(told)
    return Overlap(
        int(is_in(query_ids, fitted).sum()),
        len(query_ids),
        int(is_in(gallery_ids, fitted).sum()),
        len(gallery_ids),
    )


def fitted_note(overlap: Overlap | None) -> str | None:
    """What a reader should know of a search among such items; None where there are none.

    Example:
        >>> fitted_note(Overlap(0, 10, 3, 40))
        'no query, but 3 of 40 gallery items are such that the head was fitted on: in service it \
will gain as much only where it was fitted on what is searched, too'
    """
    if overlap is None or not (overlap.queries or overlap.gallery):
        return None
    if overlap.queries:
        return (
            f"{overlap.queries:,} of {overlap.num_queries:,} queries are items that the head was "
            f"fitted on: the gain is that on known items, and new ones may gain less; fit {REMEDY}"
        )
    return (
        f"no query, but {overlap.gallery:,} of {overlap.num_gallery:,} gallery items are such that "
        f"the head was fitted on: in service it will gain as much only where it was fitted on what "
        f"is searched, too"
    )


def check_new_queries(overlap: Overlap | None) -> None:
    """Refuses to declare by a search in which a head was asked for nothing but what it knows."""
    if overlap is not None and overlap.queries == overlap.num_queries > 0:
        raise DataError(
            f"wanted to declare a model by queries that are new to it, but the head was fitted on "
            f"all {overlap.num_queries:,} of them. Nothing was written. Fit it {REMEDY}, or "
            f"evaluate on other items."
        )
