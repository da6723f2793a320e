"""Who takes part in an assessment, and which classes are fitted on, chosen on and tested on."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor

from nobackfill.errors import DataError
from nobackfill.evaluation.file_columns import columns_of
from nobackfill.evaluation.mixed_scores import Part, make_part
from nobackfill.head.head import matched
from nobackfill.head.supervision import Pairs, classes_of, classes_of_pairs, notes_on_classes
from nobackfill.vectors import Vectors

QUERIES = 3000  # that ask, of each part
FEWEST_CLASSES = 30  # to fit on some, choose on others and test on the rest


@dataclass(frozen=True, eq=False)
class Items:
    """What both models have embedded, and what of it belongs together.

    Attributes:
        ids: Of the items.
        new: Their new vectors.
        old: Their old vectors.
        classes: Their classes.
        labels: Their labels; None where pairs tell what belongs together.
        notes: What a reader should know.
    """

    ids: NDArray[Any]
    new: Float[Tensor, "items new_dim"]
    old: Float[Tensor, "items old_dim"]
    classes: Int[Tensor, " items"]
    labels: NDArray[Any] | None
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def class_names(self) -> NDArray[Any]:
        """What to call each class: its label, or what made of pairs has none, one of its items."""
        first = np.unique(self.classes.numpy(), return_index=True)[1]
        return (self.ids if self.labels is None else self.labels)[first].astype(np.str_)


class Fitted(NamedTuple):
    """Items to fit on: their new and old vectors, and their classes."""

    new: Float[Tensor, "items new_dim"]
    old: Float[Tensor, "items old_dim"]
    classes: Int[Tensor, " items"]


class ThreeParts(NamedTuple):
    """Items of different classes: to fit on, to choose on and to test on."""

    fitted: Fitted
    chosen_on: Part
    tested_on: Part


def items_of(
    old: Vectors,
    new: Vectors,
    *,
    labels: Sequence[Any] | NDArray[Any] | None = None,
    pairs: Pairs | None = None,
) -> Items:
    """The items that both files have, with their classes; those in no pair are left out.

    Args:
        old: Vectors of the old model.
        new: Vectors of the new one.
        labels: An entry per item that both have; those of the files where they are not given.
        pairs: In place of labels: of each query what is relevant to it, by id.
    """
    ids, new_rows, old_rows, told = matched(new, old, use_labels=labels is None and pairs is None)
    if pairs is None:
        values = told if labels is None else np.asarray(labels)
        return Items(
            ids, new_rows.float(), old_rows.float(), told_classes(values, len(ids)), values
        )
    classes = classes_of_pairs(ids, pairs)
    linked = classes >= 0
    return Items(
        ids[linked.numpy()],
        new_rows[linked].float(),
        old_rows[linked].float(),
        classes[linked],
        None,
        notes=(*_left_out_notes(classes), *notes_on_classes(classes)),
    )


def three_parts(
    items: Items, is_training: Bool[Tensor, " items"] | None, *, seed: int
) -> ThreeParts:
    """Items to fit on, to choose on and to test on; see `divide`."""
    fitted, *asking = divide(items.classes, is_training, seed=seed)
    chosen_on, tested_on = (
        make_part(items.new[rows], items.old[rows], _renumbered(items.classes[rows]), most=QUERIES)
        for rows in asking
    )
    seen = Fitted(items.new[fitted], items.old[fitted], items.classes[fitted])
    return ThreeParts(seen, chosen_on, tested_on)


def told_classes(values: NDArray[Any] | None, items: int) -> Int[Tensor, " items"]:
    """The class of each item by its label; raises where some have none."""
    if values is None or len(values) != items:
        raise DataError(
            f"wanted to know what belongs together, but got "
            f"{'no labels' if values is None else f'{len(values)} labels'} for {items} items. Add "
            f"a column `label`, name a column of groups, or pass pairs."
        )
    return classes_of(values.tolist())


def training_items(files: Sequence[Vectors], ids: NDArray[Any]) -> Bool[Tensor, " items"] | None:
    """Which items the files say are to fit on (column `split`); None where they do not say."""
    split = columns_of(files, ids).get("split")
    if split is None or not (split == "train").any() or (split == "train").all():
        return None
    return torch.from_numpy(split == "train")


def divide(
    classes: Int[Tensor, " items"], is_training: Bool[Tensor, " items"] | None, *, seed: int
) -> list[Int[Tensor, " some"]]:
    """Rows to fit on, to choose on and to test on, of different classes.

    Where the items to fit on are told, the classes of all others are halved. Else three fifths of
    the classes are to fit on, a fifth to choose on, and a fifth to test on. Only classes of two
    items or more are looked at: others have nothing to find.
    """
    generator = torch.Generator().manual_seed(seed)
    if is_training is not None:
        rest = _of_two_or_more(classes[~is_training])
        rest = rest[~torch.isin(rest, classes[is_training])]
        order = rest[torch.randperm(len(rest), generator=generator)]
        shares = [order[: len(order) // 2], order[len(order) // 2 :]]
        fitted = [classes[is_training].unique()]
    else:
        many = _of_two_or_more(classes)
        order = many[torch.randperm(len(many), generator=generator)]
        ends = [0, 3 * len(order) // 5, 4 * len(order) // 5, len(order)]
        fitted = [order[: ends[1]]]
        shares = [order[ends[1] : ends[2]], order[ends[2] :]]
    if len(order) < FEWEST_CLASSES:
        raise DataError(
            f"wanted at least {FEWEST_CLASSES} classes of two items or more, to fit on some and "
            f"test on others, but there are {len(order)}. Bring items of more classes."
        )
    return [torch.isin(classes, some).nonzero().flatten() for some in (*fitted, *shares)]


def _of_two_or_more(classes: Int[Tensor, " items"]) -> Int[Tensor, " classes"]:
    known, count = classes.unique(return_counts=True)
    many: Tensor = known[count > 1]
    return many


def _renumbered(classes: Int[Tensor, " items"]) -> Int[Tensor, " items"]:
    numbers: Tensor = classes.unique(return_inverse=True)[1]
    return numbers


def _left_out_notes(classes: Int[Tensor, " items"]) -> list[str]:
    """How many items are in no pair."""
    if (alone := int((classes < 0).sum())) == 0:
        return []
    return [
        f"{alone:,} of {len(classes):,} items are in no pair and take part in nothing: they are "
        f"neither fitted on, nor asked, nor searched"
    ]


def split_notes(is_training: Bool[Tensor, " items"] | None) -> list[str]:
    """Whether test classes may have been seen by the models themselves."""
    if is_training is not None:
        return []
    return [
        "no column `split` tells which classes the models were trained on: if the new model has "
        "seen the test classes, this is too good to be true"
    ]
