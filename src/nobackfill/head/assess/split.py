"""Items of an assessment, and the classes to fit on, to choose on and to test on."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor

from nobackfill.core.short import Short
from nobackfill.data.splits import draw_parts
from nobackfill.errors import DataError
from nobackfill.evaluation.bootstrap import FEWEST_GROUPS
from nobackfill.evaluation.file_columns import check_one_label, file_with, label_hint, roles_of
from nobackfill.evaluation.mixed_scores import Part, make_part
from nobackfill.head.inputs import match_items
from nobackfill.head.split import repeated_classes
from nobackfill.head.supervision import Pairs, notes_on_classes, resolve_classes
from nobackfill.vectors import Vectors
from nobackfill.vectors.ids import is_in, rows_of_ids
from nobackfill.vectors.split_column import is_training

QUERIES = 3000  # largest number of queries per part
FEWEST_CLASSES = 30  # smallest number of classes that can be divided into three parts


class Roles(NamedTuple):
    """Which items are queries, and which are searched."""

    is_query: Bool[Tensor, " items"]
    is_gallery: Bool[Tensor, " items"]

    def of(self, rows: Int[Tensor, " rows"]) -> "Roles":
        """Returns the roles of the items in these rows."""
        return Roles(self.is_query[rows], self.is_gallery[rows])


@dataclass(frozen=True, eq=False, repr=False)
class Items(Short):
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
    test_rows: Int[Tensor, " items"]  # rows of the items of the test part

    @property
    def counts(self) -> dict[str, int]:
        """Number of classes of each part, and of test queries."""
        return {
            "fitted_classes": len(self.fitted.classes.unique()),
            "validation_classes": len(np.unique(self.validation.groups)),
            "test_classes": len(np.unique(self.test.groups)),
            "test_queries": len(self.test.queries),
        }


def items_of(old: Vectors, new: Vectors, *, pairs: Pairs | None = None) -> Items:
    """Returns the items of both sides with their classes, without items that are in no pair."""
    ids, new_rows, old_rows, names = match_items(new, old, use_labels=pairs is None)
    classes = resolve_classes(ids, names, pairs)
    if classes is None:
        check_one_label((old, new))
        hint = label_hint((old, new))
        raise DataError(
            f"There are no labels for {len(ids)} items. Add a column `label`, name another "
            f"(--label, in Python `label=`), or pass pairs. `nobackfill.assess_rankings` needs "
            f"none of them{hint and f'; {hint}'}."
        )
    new_rows, old_rows = new_rows.float().cpu(), old_rows.float().cpu()  # fits choose their device
    if pairs is None:
        return Items(ids, new_rows, old_rows, classes, names)
    # leave out the items that are in no pair
    linked = classes >= 0
    linked_ids, unlinked = ids[linked.numpy()], int((~linked).sum())
    notes = notes_on_classes(classes)
    if unlinked:
        notes = (f"{unlinked:,} of {len(ids):,} items are in no pair and are not used", *notes)
    return Items(linked_ids, new_rows[linked], old_rows[linked], classes[linked], linked_ids, notes)


def split_for_assessment(
    items: Items,
    is_training: Bool[Tensor, " items"] | None,
    roles: Roles | None = None,
    *,
    seed: int,
) -> AssessmentSplit:
    """Divides items as `divide` does."""
    fitted, *searched = divide(items.classes, is_training, roles, seed=seed)
    validation, test = (
        make_part(
            items.new[rows],
            items.old[rows],
            items.classes[rows].unique(return_inverse=True)[1],
            most=QUERIES,
            **({} if roles is None else roles.of(rows)._asdict()),
        )
        for rows in searched
    )
    return AssessmentSplit(
        FittedItems(items.new[fitted], items.old[fitted], items.classes[fitted]),
        validation,
        test,
        searched[1],
    )


def roles_of_items(files: Sequence[Vectors], ids: NDArray[Any]) -> Roles | None:
    """Returns which items are queries and gallery items; None without columns of roles."""
    if all(file_with(column, files) is None for column in Roles._fields):
        return None
    return Roles(
        *(torch.from_numpy(is_in(ids, own)) for own in roles_of(files, leave_one_out=False))
    )


def training_items(files: Sequence[Vectors], ids: NDArray[Any]) -> Bool[Tensor, " items"] | None:
    """Returns which items are training items by the column `split`; None if it separates none."""
    file = file_with("split", files)
    marks = None if file is None else is_training(file)
    if file is None or marks is None or not marks.any() or marks.all():
        return None
    return torch.from_numpy(marks[rows_of_ids(ids, file.ids)])


def divide(
    classes: Int[Tensor, " items"],
    is_training: Bool[Tensor, " items"] | None,
    roles: Roles | None = None,
    *,
    seed: int,
) -> list[Int[Tensor, " rows"]]:
    """Returns rows to fit on, to choose on and to test on, of different classes.

    With training items, all of them are to fit on and the other classes are halved. Without, three
    fifths of the classes are to fit on, a fifth to choose on and a fifth to test on, but at least
    8, as fewer decide nothing. Classes of a single item are left out: it has nothing to find.

    With roles, only queries and gallery items are to choose on and to test on, of classes in which
    a query has something to find. Without training items, all other classes of two items or more
    are to fit on.
    """
    everything = torch.ones(len(classes), dtype=torch.bool)
    is_query, is_gallery = roles or Roles(everything, everything)
    unseen = everything if is_training is None else ~is_training
    rest = searchable_classes(classes, is_query & unseen, is_gallery & unseen)
    if is_training is None:
        others = repeated_classes(classes)
        others = others[~torch.isin(others, rest)]
        ends = [3 * len(rest) // 5, min(4 * len(rest) // 5, len(rest) - FEWEST_GROUPS)]
    else:
        others = classes[is_training].unique()
        rest = rest[~torch.isin(rest, others)]
        ends = [0, len(rest) // 2]
    if len(rest) < FEWEST_CLASSES:
        kind = "two items or more" if roles is None else "a query and another item to find"
        raise DataError(
            f"An assessment needs at least {FEWEST_CLASSES} classes of {kind}, to fit "
            f"on some and test on others, but there are {len(rest)}. Add items of more classes."
        )
    fitted, *searched = draw_parts(rest, ends, seed=seed)
    takes_part = is_query | is_gallery
    return [
        torch.isin(classes, torch.cat([others, fitted])).nonzero().flatten(),
        *((torch.isin(classes, part) & takes_part).nonzero().flatten() for part in searched),
    ]


def searchable_classes(
    classes: Int[Tensor, " items"],
    is_query: Bool[Tensor, " items"],
    is_gallery: Bool[Tensor, " items"],
) -> Int[Tensor, " classes"]:
    """Returns the classes in which a query has another item to find, ascending.

    Example:
        >>> query, gallery = torch.tensor([[1, 0, 1, 0], [0, 1, 1, 1]]).bool()
        >>> searchable_classes(torch.tensor([0, 0, 1, 2]), query, gallery)
        tensor([0])
    """
    number = int(classes.max()) + 1
    queries, gallery, either = (
        classes[marks].bincount(minlength=number)
        for marks in (is_query, is_gallery, is_query | is_gallery)
    )
    return ((queries > 0) & (gallery > 0) & (either > 1)).nonzero().flatten()


def split_notes(is_training: Bool[Tensor, " items"] | None) -> list[str]:
    """Returns a note if the models may have been trained on the test classes."""
    if is_training is not None:
        return []
    return [
        "no column `split` names the classes that the models were trained on: if the new model was "
        "trained on the test classes, these results are too good to be true"
    ]
