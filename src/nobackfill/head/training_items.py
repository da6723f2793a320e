"""Which items a head is fitted on, and which are kept for its evaluation.

The column `split` decides if a file has it. Otherwise a share of the classes is kept out of the
fit. The head marks what it was fitted on, so `evaluate` tests it on the other classes alone.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Int
from numpy.typing import NDArray
from torch import Tensor

from nobackfill.data.splits import draw_parts
from nobackfill.errors import DataError
from nobackfill.evaluation.bootstrap import FEWEST_GROUPS
from nobackfill.evaluation.file_columns import file_with
from nobackfill.head.arguments import FitArguments
from nobackfill.head.inputs import common_ids, drop_pairs
from nobackfill.head.split import FEWEST_CLASSES, repeated_classes
from nobackfill.vectors.ids import is_in
from nobackfill.vectors.split_column import is_training


def only_training_items(given: FitArguments) -> FitArguments | None:
    """Returns the arguments without items that the column `split` keeps for evaluation.

    Pairs with such items go, too. Returns None if there is no column `split`.
    """
    new, old = given.new, given.old
    file = file_with("split", (old, new))
    if file is None:
        return None
    marks = is_training(file)
    assert marks is not None
    training = file.ids[marks]
    shared = common_ids(new, old)
    if not is_in(shared, training).any():
        raise DataError(
            f"The column `split` marks none of the {len(shared):,} items for training. Fit on a "
            f"file with training items, or drop the column."
        )
    others = set(map(str, shared[~is_in(shared, training)].tolist()))
    return replace(
        given,
        new=new.select(is_in(new.ids, training)),
        old=old.select(is_in(old.ids, training)),
        pairs=None if given.pairs is None else drop_pairs(given.pairs, others),
    )


def keep_for_evaluation(
    classes: Int[Tensor, " items"] | None, items: int, share: float, *, seed: int
) -> Bool[Tensor, " items"]:
    """Marks the items of a share of the classes; none if too few classes would be left to fit on.

    Without classes no item is marked.
    """
    unmarked = torch.zeros(items, dtype=torch.bool)
    if share == 0 or classes is None:
        return unmarked
    repeated = repeated_classes(classes)
    number = max(round(share * len(repeated)), FEWEST_GROUPS)
    if len(repeated) - number < max(FEWEST_CLASSES, 2 * FEWEST_GROUPS):
        return unmarked
    kept, _ = draw_parts(repeated, [number], seed=seed)
    return torch.isin(classes, kept)


def evaluation_note(
    is_kept: Bool[Tensor, " items"], classes: Int[Tensor, " items"] | None, names: NDArray[Any]
) -> str:
    """Returns what was kept for the evaluation; `names` has the name of each item's class.

    Example:
        >>> numbers = torch.tensor([0, 0, 1, 1])
        >>> evaluation_note(numbers == 1, numbers, np.array(["a", "a", "b", "b"]))
        "no column `split`: 1 of 2 classes, 2 of 4 items, are kept for the evaluation ('b')"
    """
    items = f"{int(is_kept.sum()):,} of {len(is_kept):,} items"
    if not is_kept.any():
        return (
            f"the head is fitted on all {len(is_kept):,} items, so an evaluation on them decides "
            f"nothing: add a column `split`, or evaluate on other classes"
        )
    assert classes is not None
    numbers, first = np.unique(classes[is_kept].numpy(), return_index=True)
    shown = names[is_kept.numpy()][first[:3]].tolist()
    listed = ", ".join([*map(repr, shown), *["…"] * (len(numbers) > 3)])
    total = len(classes[classes >= 0].unique())
    return (
        f"no column `split`: {len(numbers):,} of {total:,} classes, {items}, are kept for the "
        f"evaluation ({listed})"
    )
