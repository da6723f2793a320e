"""Divides the items of a fit into fitted and held-out classes."""

from dataclasses import dataclass
from math import ceil

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from nobackfill.core.short import Short
from nobackfill.data.splits import draw_parts
from nobackfill.head.examples import Examples
from nobackfill.head.supervision import notes_on_classes

FEWEST_CLASSES = 10  # with fewer classes, none is held out
LOOSE = 2 / 3  # share of the classes, the loosest ones, that may be held out
BLOCK = 65_536  # rows per block


@dataclass(frozen=True, eq=False, repr=False)
class FitSplit(Short):
    """Fitted and held-out items of a fit."""

    fitted: Examples  # items to fit on
    held_out: Examples | None  # items of other classes; None if no class can be held out
    supervision: str  # kind of supervision: "labels", "pairs", "groups" or "none"
    notes: tuple[str, ...] = ()  # notes on the classes

    @property
    def rows(self) -> Int[Tensor, " items"]:
        """Rows of all used items, also of held-out ones, which determine when to stop."""
        parts = [self.fitted, *([] if self.held_out is None else [self.held_out])]
        rows = [part.rows for part in parts if part.rows is not None]
        return torch.cat(rows) if rows else torch.arange(len(self.fitted.new))


def split_items(
    new: Float[Tensor, "items new_dim"],
    old: Float[Tensor, "items old_dim"],
    classes: Int[Tensor, " items"] | None,
    supervision: str,
    *,
    share: float,
    seed: int,
    modality: Int[Tensor, " items"] | None = None,
) -> FitSplit:
    """Divides items into fitted and held-out ones; without enough classes, none is held out.

    Classes are numbers, or -1 for an item without a class. Vectors are on the same device.
    """
    modality = None if modality is None else modality.to(old.device)
    everything = Examples(new, old, None, modality=modality)
    if classes is None:
        note = "no supervision was used: the head is a closed-form map"
        return FitSplit(everything, None, "none", (note,))
    fitted, held_out = hold_out(classes, share, seed=seed, tightness=tightness_of(old, classes))
    number = len(classes[classes >= 0].unique())
    if number < FEWEST_CLASSES or len(held_out) == 0:
        note = (
            f"no supervision was used: {number} classes, {len(repeated_classes(classes))} of them "
            f"with more than one item, are too few to hold some out, so the head is a closed-form "
            f"map"
        )
        return FitSplit(everything, None, "none", (note,))
    # Renumber the classes of each part from 0 on.
    parts = []
    for rows in (fitted, held_out):
        numbers = classes[rows].unique(return_inverse=True)[1].to(old.device)
        rows = rows.to(old.device)
        kinds = None if modality is None else modality[rows]
        parts.append(Examples(new, old[rows], numbers, rows=rows, modality=kinds))
    notes = notes_on_classes(classes) if supervision == "pairs" else ()
    return FitSplit(parts[0], parts[1], supervision, notes)


def hold_out(
    classes: Int[Tensor, " items"],
    share: float,
    *,
    seed: int,
    tightness: Float[Tensor, " classes"] | None = None,
) -> tuple[Int[Tensor, " fitted"], Int[Tensor, " held_out"]]:
    """Returns the rows of the classes to fit on, and those of a share of the classes to hold out.

    Classes of a single item are not held out, because such an item has nothing to find. Items
    without a class (-1) are in neither part. At least two classes are held out, because every
    result is right among items of one class, and at least two are fitted on. If that is impossible,
    none is held out.

    With `tightness`, the tightest third is never held out: the old model may have been trained on
    these classes. Imitating the old model is best on them, but not on unseen ones.
    """
    candidates = repeated = repeated_classes(classes)
    if tightness is not None:
        number = max(ceil(len(repeated) * LOOSE), 2)
        loosest = tightness[repeated].argsort(stable=True)[:number]
        candidates = repeated[loosest.sort().values]
    total = len(classes[classes >= 0].unique())
    number = min(max(round(share * len(repeated)), 2), total - 2, len(candidates))
    number = 0 if number < 2 or len(repeated) < 2 else number
    chosen, _ = draw_parts(candidates, [number], seed=seed)
    is_held_out = torch.isin(classes, chosen)
    return ((classes >= 0) & ~is_held_out).nonzero().flatten(), is_held_out.nonzero().flatten()


def repeated_classes(classes: Int[Tensor, " items"]) -> Int[Tensor, " classes"]:
    """Returns the classes with two items or more, ascending; -1 marks items without a class.

    Example:
        >>> repeated_classes(torch.tensor([2, 0, 2, -1, -1, 1, 0]))
        tensor([0, 2])
    """
    numbers, count = classes[classes >= 0].unique(return_counts=True)
    repeated: Tensor = numbers[count > 1]
    return repeated


def tightness_of(
    old: Float[Tensor, "items dim"], classes: Int[Tensor, " items"]
) -> Float[Tensor, " classes"]:
    r"""Returns the tightness of each class: the length of the mean of its unit vectors.

    .. math::
        t_c = \Big\lVert \frac{1}{n_c} \sum_{i : y_i = c} \frac{o_i}{\lVert o_i \rVert} \Big\rVert
    """
    number = int(classes.max()) + 1
    sums = torch.zeros(number, old.shape[1], device=old.device)
    for rows in (classes >= 0).nonzero().flatten().split(BLOCK):
        unit = F.normalize(old[rows.to(old.device)].float(), dim=1)
        sums.index_add_(0, classes[rows].to(old.device), unit)
    count = classes[classes >= 0].bincount(minlength=number).clamp(min=1)
    length: Tensor = sums.norm(dim=1).cpu() / count
    return length
