"""Divides the items of a fit into fitted and held-out classes."""

from dataclasses import dataclass
from math import ceil

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from nobackfill.core.short import Short
from nobackfill.data.splits import draw_parts
from nobackfill.head.examples import Examples
from nobackfill.head.supervision import notes_on_classes

FEWEST_CLASSES = 10  # with fewer classes, none is held out
FOLDS = 3  # of a cross-validation over classes
ENOUGH = 100  # held-out classes of one fold suffice
LOOSE = 2 / 3  # share of the classes that may be held out: the loosest ones
BLOCK = 65_536  # rows per block


@dataclass(frozen=True, eq=False, repr=False)
class Fold(Short):
    """Items to fit on, and items of other classes to measure on."""

    fitted: Examples
    held_out: Examples


@dataclass(frozen=True, eq=False, repr=False)
class FitSplit(Short):
    """Fitted and held-out items of a fit."""

    everything: Examples  # items of all folds; without folds items without classes
    folds: tuple[Fold, ...]  # each holds out other classes; empty if no class can be held out
    supervision: str  # kind of supervision: "labels", "pairs", "groups" or "none"
    notes: tuple[str, ...] = ()  # notes on the classes

    @property
    def fitted(self) -> Examples:
        """Items to fit on in the first fold."""
        return self.folds[0].fitted if self.folds else self.everything

    @property
    def held_out(self) -> Examples | None:
        """Items that the first fold holds out; None if no class can be held out."""
        return self.folds[0].held_out if self.folds else None

    @property
    def rows(self) -> Int[Tensor, " items"]:
        """Rows of all used items, also of held-out ones, which determine when to stop."""
        rows = self.everything.rows
        return torch.arange(len(self.everything.new)) if rows is None else rows


def split_items(
    new: Float[Tensor, "items new_dim"],
    old: Float[Tensor, "items old_dim"],
    classes: Int[Tensor, " items"] | None,
    supervision: str,
    *,
    share: float,
    seed: int,
    several: bool = False,
    modality: Int[Tensor, " items"] | None = None,
) -> FitSplit:
    """Divides items into fitted and held-out ones; without enough classes, none is held out.

    Classes are numbers, or -1 for an item without a class. Vectors are on the same device. With
    `several`, each of several folds holds out other classes if there are few; see `class_folds`.
    """
    modality = None if modality is None else modality.to(old.device)
    unsupervised = Examples(new, old, None, modality=modality)
    if classes is None:
        note = "no supervision was used: the head is a closed-form map"
        return FitSplit(unsupervised, (), "none", (note,))
    tightness = tightness_of(old, classes)
    chosen = class_folds(classes, share, seed=seed, tightness=tightness, several=several)
    number = len(classes[classes >= 0].unique())
    if number < FEWEST_CLASSES or not chosen:
        note = (
            f"no supervision was used: {number} classes, {len(repeated_classes(classes))} of them "
            f"with more than one item, are too few to hold some out, so the head is a closed-form "
            f"map"
        )
        return FitSplit(unsupervised, (), "none", (note,))

    def part(is_used: Bool[Tensor, " items"]) -> Examples:
        """Returns some items, with their classes numbered from 0 on."""
        rows = is_used.nonzero().flatten()
        numbers = classes[rows].unique(return_inverse=True)[1].to(old.device)
        rows = rows.to(old.device)
        kinds = None if modality is None else modality[rows]
        return Examples(new, old[rows], numbers, rows=rows, modality=kinds)

    known = classes >= 0
    away = [torch.isin(classes, of_fold) for of_fold in chosen]
    folds = tuple(Fold(part(known & ~is_away), part(is_away)) for is_away in away)
    notes = notes_on_classes(classes) if supervision == "pairs" else ()
    return FitSplit(part(known), folds, supervision, notes)


def class_folds(
    classes: Int[Tensor, " items"],
    share: float,
    *,
    seed: int,
    tightness: Float[Tensor, " classes"] | None = None,
    several: bool = False,
) -> list[Int[Tensor, " held_out"]]:
    """Returns the classes that each fold holds out; no folds if none can be held out.

    Classes of a single item are not held out, because such an item has nothing to find. At least
    two classes are held out, because every result is right among items of one class, and at least
    two are fitted on.

    With `tightness`, the tightest third is never held out: the old model may have been trained on
    these classes. Imitating the old model is best on them, but not on unseen ones.

    A single fold holds out a share of the classes. With `several`, all others that may be held out
    are divided among `FOLDS` folds, if a fold then has fewer than `ENOUGH` classes: the mean over
    few classes is mostly chance.
    """
    candidates = repeated = repeated_classes(classes)
    if tightness is not None:
        number = max(ceil(len(repeated) * LOOSE), 2)
        loosest = tightness[repeated].argsort(stable=True)[:number]
        candidates = repeated[loosest.sort().values]
    total = len(classes[classes >= 0].unique())
    if several and 2 * FOLDS <= len(candidates) < FOLDS * ENOUGH:
        ends = [len(candidates) * fold // FOLDS for fold in range(1, FOLDS)]
        return list(draw_parts(candidates, ends, seed=seed))
    number = min(max(round(share * len(repeated)), 2), total - 2, len(candidates))
    if number < 2 or len(repeated) < 2:
        return []
    return [draw_parts(candidates, [number], seed=seed)[0]]


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
