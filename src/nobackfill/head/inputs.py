"""What a head is given: vectors of both models, row by row or by id."""

from typing import Any

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from nobackfill.errors import DataError
from nobackfill.evaluation.file_columns import check_agreement, columns_of, rows_of
from nobackfill.vectors import Vectors
from nobackfill.vectors.ids import is_in
from nobackfill.vectors.matrix import as_matrix, blocks, check_rows

Rows = Vectors | Tensor | NDArray[Any]

SHORTEST = 1e-12  # shorter ones are not made unit


def matched(
    new: Rows, old: Rows, *, use_labels: bool = True
) -> tuple[NDArray[Any], Float[Tensor, "items new_dim"], Float[Tensor, "items old_dim"], Any]:
    """Ids, new and old vectors of the items that both have, and the labels that a file tells.

    In the order of the old file, and as they are stored: not copied where both files have the same
    items in the same order.

    Args:
        new: New vectors.
        old: Old vectors.
        use_labels: Whether to look for labels, which must be the same in both files.
    """
    if isinstance(new, Vectors) and isinstance(old, Vectors):
        ids = common_ids(new, old)
        labels = None
        if use_labels:
            check_agreement("label", {"the old file": old, "the new file": new}, ids)
            labels = columns_of((old, new), ids).get("label")
        sides = rows_of(new, ids), rows_of(old, ids)
    elif isinstance(new, Vectors) or isinstance(old, Vectors):
        raise DataError("wanted both sides with ids, or both without. Pass two Vectors, or arrays.")
    else:
        sides, labels = (as_matrix(new), as_matrix(old)), None
        ids = np.arange(len(sides[0]))
        if len(sides[0]) != len(sides[1]):
            raise DataError(
                f"wanted a new and an old vector of each item, but got {tuple(sides[0].shape)} "
                f"and {tuple(sides[1].shape)}. Pass rows of the same items, or Vectors with ids."
            )
    for side in sides:
        check_lengths(side, ids)
    return ids, *sides, labels


def common_ids(new: Vectors, old: Vectors) -> NDArray[Any]:
    """The ids that both have, in the order of the old ones."""
    if new.ids.dtype.kind != old.ids.dtype.kind:
        raise DataError(
            f"wanted ids of one kind, but the old file names items like {old.ids[0].item()!r} and "
            f"the new like {new.ids[0].item()!r}. Write the same ids into both files."
        )
    ids: NDArray[Any] = old.ids[is_in(old.ids, new.ids)]
    if len(ids) == 0:
        raise DataError(
            f"wanted items that both files have, but none of {len(old)} old and {len(new)} new "
            f"ones is in both. Check that they name their items alike."
        )
    return ids


def partner_notes(
    old: Vectors, new: Vectors, ids: NDArray[Any], *, only_training: bool = False
) -> tuple[str, ...]:
    """How many items of each file the other lacks, and the first of them.

    Args:
        old: Old vectors.
        new: New vectors.
        ids: Of the items that both have.
        only_training: Whether items that the column `split` of their file puts elsewhere would
            have taken no part in any case.

    Example:
        >>> import torch
        >>> old, new = Vectors(["a", "b", "c"], torch.eye(3)), Vectors(["b"], torch.ones(1, 2))
        >>> partner_notes(old, new, common_ids(new, old))
        ("2 of 3 items of the old file are not in the new one and take no part (first: 'a', 'c')",)
    """
    notes = []
    for file, name, other in ((old, "old", "new"), (new, "new", "old")):
        among, split = file.ids, file.columns.get("split")
        if only_training and split is not None and (split == "train").any():
            among = among[split == "train"]
        if len(alone := among[~is_in(among, ids)]):
            first = ", ".join(map(repr, alone[:3].tolist()))
            notes.append(
                f"{len(alone):,} of {len(among):,} items of the {name} file are not in the {other} "
                f"one and take no part (first: {first})"
            )
    return tuple(notes)


def check_lengths(vectors: Float[Tensor, "rows dim"], ids: NDArray[Any]) -> None:
    """Refuses vectors that a head cannot map: in single precision, each must have a direction."""
    for first, block in blocks(vectors):
        length = block.float().norm(dim=1)
        if (bad := ~length.isfinite() | (length <= SHORTEST)).any():
            check_rows(vectors, ids)  # says it better where a number is at fault
            row = first + int(bad.nonzero()[0])
            raise DataError(
                f"wanted vectors whose length float32 can tell, but that of id "
                f"{ids[row].item()!r} (row {row}) is {vectors[row].double().norm().item():g}. "
                f"Scale them, or drop it."
            )


def check_order(new: Rows, old: Rows, kind: str) -> None:
    """Refuses a list beside two files that name their items in different orders: whose is it?"""
    ids = [side.ids for side in (new, old) if isinstance(side, Vectors)]
    if len(ids) == 2 and not np.array_equal(ids[0], ids[1]):
        raise DataError(
            f"wanted {kind} in the order of the items, but the new and the old vectors have other "
            f"items, or another order. Put them into the Vectors, or `select` the same rows of "
            f"both."
        )
