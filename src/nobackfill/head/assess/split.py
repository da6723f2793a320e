"""Items of an assessment, and the classes to fit on, to choose on and to test on."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor

from nobackfill.data.splits import draw_parts
from nobackfill.errors import DataError
from nobackfill.evaluation.file_columns import file_with
from nobackfill.evaluation.mixed_scores import Part, make_part
from nobackfill.head.inputs import match_items
from nobackfill.head.split import repeated_classes
from nobackfill.head.supervision import Pairs, notes_on_classes, resolve_classes
from nobackfill.vectors import Vectors
from nobackfill.vectors.ids import rows_of_ids
from nobackfill.vectors.split_column import is_training

QUERIES = 3000  # largest number of queries per part
FEWEST_CLASSES = 30  # smallest number of classes that can be divided into three parts


@dataclass(frozen=True, eq=False)
class Items:
    """Items of both models, with their classes."""

    ids: NDArray[Any]
    new: Float[Tensor, "items new_dim"]
    old: Float[Tensor, "items old_dim"]
    classes: Int[Tensor, " items"]
    names: NDArray[Any]  # labels, or ids for pairs; classes are named by them
    notes: tuple[str, ...] = ()  # notes on the classes

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def class_names(self) -> NDArray[Any]:
        """Name of each class: that of its first item."""
        first = np.unique(self.classes.numpy(), return_index=True)[1]
        return self.names[first].astype(np.str_)


class FittedItems(NamedTuple):
    """New vectors, old vectors and classes of the items to fit on."""

    new: Float[Tensor, "items new_dim"]
    old: Float[Tensor, "items old_dim"]
    classes: Int[Tensor, " items"]


class AssessmentSplit(NamedTuple):
    """Items of different classes: to fit on, to choose on and to test on."""

    fitted: FittedItems
    validation: Part
    test: Part

    @property
    def counts(self) -> dict[str, int]:
        """Number of classes of each part, and of test queries."""
        return {
            "fitted_classes": len(self.fitted.classes.unique()),
            "validation_classes": len(np.unique(self.validation.groups)),
            "test_classes": len(np.unique(self.test.groups)),
            "test_queries": len(self.test.queries),
        }


def items_of(
    old: Vectors,
    new: Vectors,
    *,
    labels: Sequence[Any] | NDArray[Any] | None = None,
    pairs: Pairs | None = None,
) -> Items:
    """Returns the items of both files with their classes, without items that are in no pair."""
    use_labels = labels is None and pairs is None
    ids, new_rows, old_rows, file_labels = match_items(new, old, use_labels=use_labels)
    classes, kind = resolve_classes(ids, file_labels, labels=labels, pairs=pairs, groups=None)
    if classes is None:
        raise DataError(
            f"There are no labels for {len(ids)} items. Add a column `label`, name a column of "
            f"groups, or pass pairs."
        )
    if kind != "pairs":
        names = np.asarray(file_labels if labels is None else labels)
        return Items(ids, new_rows.float(), old_rows.float(), classes, names)
    # leave out the items that are in no pair
    linked = classes >= 0
    linked_ids, unlinked = ids[linked.numpy()], int((~linked).sum())
    notes = notes_on_classes(classes)
    if unlinked:
        notes = (f"{unlinked:,} of {len(ids):,} items are in no pair and are not used", *notes)
    new_rows, old_rows = new_rows[linked].float(), old_rows[linked].float()
    return Items(linked_ids, new_rows, old_rows, classes[linked], linked_ids, notes)


def split_for_assessment(
    items: Items, is_training: Bool[Tensor, " items"] | None, *, seed: int
) -> AssessmentSplit:
    """Divides items as `divide` does."""
    fitted, *searched = divide(items.classes, is_training, seed=seed)
    validation, test = (
        make_part(
            items.new[rows],
            items.old[rows],
            items.classes[rows].unique(return_inverse=True)[1],
            most=QUERIES,
        )
        for rows in searched
    )
    return AssessmentSplit(
        FittedItems(items.new[fitted], items.old[fitted], items.classes[fitted]), validation, test
    )


def training_items(files: Sequence[Vectors], ids: NDArray[Any]) -> Bool[Tensor, " items"] | None:
    """Returns which items are training items by the column `split`; None if it separates none."""
    file = file_with("split", files)
    marks = None if file is None else is_training(file)
    if file is None or marks is None or not marks.any() or marks.all():
        return None
    return torch.from_numpy(marks[rows_of_ids(ids, file.ids)])


def divide(
    classes: Int[Tensor, " items"], is_training: Bool[Tensor, " items"] | None, *, seed: int
) -> list[Int[Tensor, " rows"]]:
    """Returns rows to fit on, to choose on and to test on, of different classes.

    With training items, all of them are to fit on and the other classes are halved. Without, three
    fifths of the classes are to fit on, a fifth to choose on and a fifth to test on. Classes of a
    single item are left out: it has nothing to find.
    """
    fitted = []
    if is_training is None:
        rest = repeated_classes(classes)
        number = len(rest)
        ends = [3 * number // 5, 4 * number // 5]
    else:
        fitted = [classes[is_training].unique()]
        rest = repeated_classes(classes[~is_training])
        rest = rest[~torch.isin(rest, fitted[0])]
        number = len(rest)
        ends = [number // 2]
    if number < FEWEST_CLASSES:
        raise DataError(
            f"An assessment needs at least {FEWEST_CLASSES} classes of two items or more, to fit "
            f"on some and test on others, but there are {number}. Add items of more classes."
        )
    parts = (*fitted, *draw_parts(rest, ends, seed=seed))
    return [torch.isin(classes, part).nonzero().flatten() for part in parts]


def split_notes(is_training: Bool[Tensor, " items"] | None) -> list[str]:
    """Returns a note if the models may have been trained on the test classes."""
    if is_training is not None:
        return []
    return [
        "no column `split` names the classes that the models were trained on: if the new model was "
        "trained on the test classes, these results are too good to be true"
    ]
