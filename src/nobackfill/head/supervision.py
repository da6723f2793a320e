"""What belongs together: classes from labels, from pairs, or from groups."""

from collections.abc import Iterable, Mapping, Sequence
from math import ceil
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from nobackfill.errors import DataError

Pairs = Mapping[Any, Sequence[Any]]  # of each query, what is relevant to it
LOOSE = 2 / 3  # of the classes, those whose vectors lie farthest apart, may be held out
BLOCK = 65_536  # rows that are looked at in one go
LARGE = 0.1  # of all linked items: a class that holds more of them is worth a note


def classes_of(values: Iterable[Any]) -> Int[Tensor, " items"]:
    """Labels or groups of any kind as numbers from 0 on, in the order of their values.

    Example:
        >>> classes_of(["b", "a", "b"])
        tensor([1, 0, 1])
    """
    known = np.asarray(list(values))
    if known.ndim != 1:
        raise DataError(
            f"wanted one class for each item, but got an array of the shape {known.shape}. Pass a "
            f"single column."
        )
    missing = np.array([one is None or one != one for one in known.tolist()], dtype=bool)
    if missing.any():
        raise DataError(
            f"wanted a class for each item, but {int(missing.sum())} of {len(known)} are missing, "
            f"the first being that of row {int(np.flatnonzero(missing)[0])}. Give each such item a "
            f"class of its own, or leave it out."
        )
    return torch.from_numpy(np.unique(known, return_inverse=True)[1].astype(np.int64))


def classes_of_pairs(ids: NDArray[Any], pairs: Pairs) -> Int[Tensor, " items"]:
    """What is linked by pairs, directly or through others, as one class; -1 for what is in none.

    Args:
        ids: Of the items.
        pairs: Of each query the items that are relevant to it.

    Example:
        >>> classes_of_pairs(np.array(["q", "a", "b", "c"]), {"q": ["a", "b"]})
        tensor([ 0,  0,  0, -1])
    """
    if alone := [query for query, relevant in pairs.items() if isinstance(relevant, str)]:
        raise DataError(
            f"wanted a list of what is relevant to each query, but that of {alone[0]!r} is a text. "
            f"Write a list with one entry."
        )
    row = {str(item): place for place, item in enumerate(ids.tolist())}
    unknown = [
        str(item)
        for query, relevant in pairs.items()
        for item in (query, *relevant)
        if str(item) not in row
    ]
    if unknown:
        raise DataError(
            f"wanted pairs of items that have vectors, but {len(unknown)} have none, the first "
            f"being {', '.join(map(repr, unknown[:3]))}. Embed them, or leave their pairs out."
        )
    above = list(range(len(ids)))  # of each item another of its class; itself at the top

    def top(place: int) -> int:
        while above[place] != place:
            above[place] = above[above[place]]
            place = above[place]
        return place

    linked = np.zeros(len(ids), dtype=bool)
    for query, relevant in pairs.items():
        first = row[str(query)]
        for item in relevant:
            other = row[str(item)]
            linked[[first, other]] = True
            above[top(other)] = top(first)
    tops = np.array([top(place) for place in range(len(ids))])
    classes = np.full(len(ids), -1, dtype=np.int64)
    classes[linked] = np.unique(tops[linked], return_inverse=True)[1]
    return torch.from_numpy(classes)


def notes_on_classes(classes: Int[Tensor, " items"]) -> tuple[str, ...]:
    """What a reader should know of classes made of pairs: whether one holds very much.

    Args:
        classes: The class of each item; -1 for what is in no pair.

    Example:
        >>> notes_on_classes(torch.arange(40) % 20)
        ()
    """
    linked = classes[classes >= 0]
    largest = int(linked.bincount(minlength=1).max())
    if largest <= LARGE * len(linked):
        return ()
    return (
        f"{largest:,} of {len(linked):,} items in pairs are linked into one class: an item "
        f"that is relevant to many queries links them all, and what is measured on classes held "
        f"out then says little",
    )


def hold_out(
    classes: Int[Tensor, " items"],
    share: float,
    *,
    seed: int,
    tightness: Float[Tensor, " classes"] | None = None,
) -> tuple[Int[Tensor, " fitted"], Int[Tensor, " held_out"]]:
    """Rows of the classes to fit on, and of a share of the classes to look at only.

    Classes of a single item are not held out: they have nothing to find. Items of no class (-1)
    are in neither. Two classes at least are held out, as in one alone whatever is found is right,
    and two are left to fit on; where that cannot be, none is held out.

    Where it is told how tight classes are, the tightest third is not held out: maybe the old model
    was trained on them. There, to imitate it is best; in what will be searched it is not.

    Args:
        classes: The class of each item.
        share: Of the classes with two items or more.
        seed: Of the choice.
        tightness: Of each class in the old space.
    """
    known, count = classes[classes >= 0].unique(return_counts=True)
    many = known[count > 1]
    open_to_choice = many
    if tightness is not None:
        loosest = tightness[many].argsort(stable=True)[: max(ceil(len(many) * LOOSE), 2)]
        open_to_choice = many[loosest.sort().values]
    generator = torch.Generator().manual_seed(seed)
    wanted = min(max(round(share * len(many)), 2), len(known) - 2, len(open_to_choice))
    wanted = 0 if wanted < 2 or len(many) < 2 else wanted
    order = torch.randperm(len(open_to_choice), generator=generator)
    held_out = torch.isin(classes, open_to_choice[order[:wanted]])
    return ((classes >= 0) & ~held_out).nonzero().flatten(), held_out.nonzero().flatten()


def tightness_of(
    old: Float[Tensor, "items dim"], classes: Int[Tensor, " items"]
) -> Float[Tensor, " classes"]:
    r"""How near the vectors of each class are to each other: the length of their mean.

    .. math::
        t_c = \Big\lVert \frac{1}{n_c} \sum_{i : y_i = c} \frac{o_i}{\lVert o_i \rVert} \Big\rVert

    Args:
        old: Vectors.
        classes: Theirs; -1 for what is in none.
    """
    number = int(classes.max()) + 1
    sums = torch.zeros(number, old.shape[1], device=old.device)
    for some in (classes >= 0).nonzero().flatten().split(BLOCK):
        unit = F.normalize(old[some.to(old.device)].float(), dim=1)
        sums.index_add_(0, classes[some].to(old.device), unit)
    count = classes[classes >= 0].bincount(minlength=number).clamp(min=1)
    length: Tensor = sums.norm(dim=1).cpu() / count
    return length
