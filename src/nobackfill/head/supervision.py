"""Classes of items from labels, groups or pairs."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from numpy.typing import NDArray
from torch import Tensor

from nobackfill.errors import DataError
from nobackfill.head.inputs import check_complete

Pairs = Mapping[Any, Sequence[Any]]  # relevant items of each query
LARGE = 0.1  # share of all linked items above which a class is worth a note


def resolve_classes(
    ids: NDArray[Any], labels: NDArray[Any] | None, pairs: Pairs | None
) -> Int[Tensor, " items"] | None:
    """Returns the class of each item by pairs, or else by labels; None if there are neither."""
    if pairs is not None:
        return classes_of_pairs(ids, pairs)
    return None if labels is None else classes_of(labels.tolist())


def classes_of(values: Iterable[Any]) -> Int[Tensor, " items"]:
    """Numbers labels or groups of any type from 0 on, in the order of their values.

    Example:
        >>> classes_of(["b", "a", "b"])
        tensor([1, 0, 1])
    """
    labels = np.asarray(list(values))
    if labels.ndim != 1:
        raise DataError(
            f"Classes must be a single column, but they are an array of the shape {labels.shape}."
        )
    check_complete("classes", labels.tolist())
    return torch.from_numpy(np.unique(labels, return_inverse=True)[1].astype(np.int64))


def classes_of_pairs(ids: NDArray[Any], pairs: Pairs) -> Int[Tensor, " items"]:
    """Numbers the connected components of the pairs; items in no pair get -1.

    Example:
        >>> classes_of_pairs(np.array(["q", "a", "b", "c"]), {"q": ["a", "b"]})
        tensor([ 0,  0,  0, -1])
    """
    # Check the pairs.
    if texts := [query for query, relevant in pairs.items() if isinstance(relevant, str)]:
        raise DataError(
            f"The relevant items of a query must be a list, but those of {texts[0]!r} are a text. "
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
            f"{len(unknown)} items of the pairs have no vector, the first are "
            f"{', '.join(map(repr, unknown[:3]))}. Embed them, or drop their pairs."
        )
    # Join linked items by union-find.
    parent = list(range(len(ids)))

    def root(place: int) -> int:
        while parent[place] != place:
            parent[place] = parent[parent[place]]
            place = parent[place]
        return place

    linked = np.zeros(len(ids), dtype=bool)
    for query, relevant in pairs.items():
        first = row[str(query)]
        for item in relevant:
            other = row[str(item)]
            linked[[first, other]] = True
            parent[root(other)] = root(first)
    # Number the components of linked items.
    roots = np.array([root(place) for place in range(len(ids))])
    classes = np.full(len(ids), -1, dtype=np.int64)
    classes[linked] = np.unique(roots[linked], return_inverse=True)[1]
    return torch.from_numpy(classes)


def notes_on_classes(classes: Int[Tensor, " items"]) -> tuple[str, ...]:
    """Returns a note if one class from pairs contains very many items."""
    linked = classes[classes >= 0]
    largest = int(linked.bincount(minlength=1).max())
    if largest <= LARGE * len(linked):
        return ()
    return (
        f"{largest:,} of {len(linked):,} items in pairs are linked into one class: an item that is "
        f"relevant to many queries links them all, so results on held-out classes mean little",
    )
