"""What a head is fitted on and what is held out, by what belongs together."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from nobackfill.errors import ConfigError, DataError
from nobackfill.head.examples import Examples
from nobackfill.head.inputs import Rows, check_order
from nobackfill.head.supervision import (
    Pairs,
    classes_of,
    classes_of_pairs,
    hold_out,
    notes_on_classes,
    tightness_of,
)

FEWEST_CLASSES = 10  # with fewer, none can be held out


@dataclass(frozen=True, eq=False)
class Parts:
    """The items of a fit.

    Attributes:
        fitted: What to fit on.
        held_out: Of other classes; None where no class can be held out.
        supervision: What was used to part them: "labels", "pairs", "groups" or "none".
        notes: What a reader should know.
    """

    fitted: Examples
    held_out: Examples | None
    supervision: str
    notes: tuple[str, ...] = ()

    @property
    def rows(self) -> Int[Tensor, " items"]:
        """Of all that take part: also of the held-out ones, which choose where to stop."""
        parts = [one.rows for one in (self.fitted, self.held_out) if one is not None]
        told = [rows for rows in parts if rows is not None]
        return torch.cat(told) if told else torch.arange(len(self.fitted.new))


def check_kind(new: Rows, old: Rows, *, labels: Any, pairs: Any, groups: Any) -> str | None:
    """The kind of supervision that is given, if any; refuses two, or one that is in no order."""
    listed = {"labels": labels, "pairs": pairs, "groups": groups}
    given = [name for name, one in listed.items() if one is not None]
    if len(given) > 1:
        raise ConfigError(f"wanted one kind of supervision, but got {' and '.join(given)}.")
    if given and given != ["pairs"]:
        check_order(new, old, given[0])
    return given[0] if given else None


def told_classes(
    ids: NDArray[Any], told: Any, *, labels: Any, pairs: Pairs | None, groups: Any
) -> tuple[Int[Tensor, " items"] | None, str]:
    """The class of each item, and where that comes from.

    Args:
        ids: Of the items.
        told: The labels of a file, used where nothing else is given.
        labels: One for each item.
        pairs: Of each query what is relevant to it.
        groups: One for each item.
    """
    if pairs is not None:
        return classes_of_pairs(ids, pairs), "pairs"
    values, kind = (groups, "groups") if groups is not None else (labels, "labels")
    values = told if values is None else values
    values = values.cpu() if isinstance(values, Tensor) else values
    if values is None:
        return None, "none"
    if len(values) != len(ids):
        raise DataError(
            f"wanted one of the {kind} for each of {len(ids)} items, but got {len(values)}."
        )
    return classes_of(np.asarray(values).tolist()), kind


def divide(
    new: Float[Tensor, "items new_dim"],
    old: Float[Tensor, "items old_dim"],
    classes: Int[Tensor, " items"] | None,
    supervision: str,
    *,
    share: float,
    seed: int,
    modality: Int[Tensor, " items"] | None = None,
) -> Parts:
    """What to fit on, and what is held out; where no class can be, closed forms alone.

    Args:
        new: New vectors.
        old: Old vectors of the same items, on the same device.
        classes: Theirs, if known; -1 for an item that is in none.
        supervision: Where these come from.
        share: Of the classes that are held out.
        seed: Of the choice.
        modality: The number of each item's, if they are of several.
    """
    modality = None if modality is None else modality.to(old.device)
    if classes is None:
        note = "no supervision was used: this is a map in closed form"
        return Parts(Examples(new, old, None, modality=modality), None, "none", (note,))
    fitted, looked_at = hold_out(classes, share, seed=seed, tightness=tightness_of(old, classes))
    count = classes[classes >= 0].unique(return_counts=True)[1]
    if len(count) < FEWEST_CLASSES or len(looked_at) == 0:
        note = (
            f"no supervision was used: {len(count)} classes, {int((count > 1).sum())} of them "
            f"with more than one item, are too few to hold some out, so this is a map in "
            f"closed form"
        )
        return Parts(Examples(new, old, None, modality=modality), None, "none", (note,))
    parts = []
    for rows in (fitted, looked_at):
        renumbered = classes[rows].unique(return_inverse=True)[1].to(old.device)
        chosen = rows.to(old.device)
        kinds = None if modality is None else modality[chosen]
        parts.append(Examples(new, old[chosen], renumbered, rows=chosen, modality=kinds))
    notes = notes_on_classes(classes) if supervision == "pairs" else ()
    return Parts(parts[0], parts[1], supervision, notes)
