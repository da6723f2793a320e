"""Lists of the relevant and the ignored gallery items of each query."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from nobackfill.errors import DataError
from nobackfill.ops.ranking import send_to_device

Integers = Tensor | np.ndarray | Sequence[Any]  # checked by `whole_numbers`
IndexLists = Tensor | np.ndarray | Sequence[Integers]
CPU = torch.device("cpu")
Sides = tuple[Int[np.ndarray, " query"], Int[np.ndarray, " gallery"]]


@dataclass(frozen=True, eq=False)
class Lists:
    """A list of gallery items for each query: `items[start[i] : stop[i]]` for query `i`.

    `items` may be on a GPU.
    """

    start: Int[np.ndarray, " query"]
    stop: Int[np.ndarray, " query"]
    items: Int[Tensor, " items"]

    @classmethod
    def one_each(cls, items: Int[np.ndarray, " query"]) -> "Lists":
        """Returns lists of one item."""
        return cls(np.arange(len(items)), np.arange(1, len(items) + 1), torch.from_numpy(items))

    def longest(self, first: int = 0, last: int | None = None) -> int:
        """Returns the length of the longest list of queries `first` to `last`."""
        return int((self.stop - self.start)[first:last].max())

    def pairs(self, first: int, last: int) -> tuple[Int[Tensor, " pairs"], Int[Tensor, " pairs"]]:
        """Returns the lists of queries `first` to `last`, flat: rows of queries, and items."""
        start, count = self.start[first:last], (self.stop - self.start)[first:last]
        row = np.repeat(np.arange(last - first), count)
        within = np.arange(len(row)) - (count.cumsum() - count)[row]
        place = torch.from_numpy(start[row] + within)
        return torch.from_numpy(row), self.items[send_to_device(self.items.device, place)]


def what_is_relevant(
    labels: Sides | None,
    relevant: IndexLists | None,
    sizes: tuple[int, int],
    device: torch.device = CPU,
) -> Lists:
    """Returns the relevant items of each query, by labels or by lists."""
    if (labels is None) == (relevant is None):
        raise DataError(
            "a search needs either labels or lists of relevant items, but got "
            f"{'neither' if labels is None else 'both'}. Pass `query_labels` and "
            "`gallery_labels`, or else `relevant`."
        )
    if relevant is not None:
        return lists_by_index(relevant, sizes, "relevant")
    assert labels is not None
    return lists_by_label(*labels, device)


def same_label_and_camera(labels: Sides | None, cameras: Sides) -> Lists:
    """Returns the gallery items with the label and the camera of each query."""
    if labels is None:
        raise DataError(
            "cameras leave out items of the same label and camera, but relevant items come from "
            "lists, without labels. Put those items into `ignored`."
        )
    _, label = np.unique(np.concatenate(labels), return_inverse=True)
    values, camera = np.unique(np.concatenate(cameras), return_inverse=True)
    both = label * len(values) + camera
    return lists_by_label(both[: len(labels[0])], both[len(labels[0]) :])


def lists_by_label(
    query_labels: Int[np.ndarray, " query"],
    gallery_labels: Int[np.ndarray, " gallery"],
    device: torch.device = CPU,
) -> Lists:
    """Returns the gallery items with the label of each query, in the order of the gallery.

    Labels are sorted on `device`: a GPU is much faster for many labels.
    """
    if device.type != "cpu":
        query, gallery = (
            torch.from_numpy(np.require(side, requirements=["C", "W"])).to(device)
            for side in (query_labels, gallery_labels)
        )
        ordered, order = gallery.sort(stable=True)
        ends = [torch.searchsorted(ordered, query, right=right) for right in (False, True)]
        start, stop = torch.stack(ends).cpu().numpy()  # one synchronisation of a GPU
        return Lists(start, stop, order)
    items = np.argsort(gallery_labels, kind="stable")
    in_order = gallery_labels[items]
    return Lists(
        np.searchsorted(in_order, query_labels, side="left"),
        np.searchsorted(in_order, query_labels, side="right"),
        torch.from_numpy(items),
    )


def lists_by_index(lists: IndexLists, sizes: tuple[int, int], name: str) -> Lists:
    """Returns checked lists, each item once and in the order of the gallery."""
    num_queries, num_gallery = sizes
    if len(lists) != num_queries:
        raise DataError(
            f"`{name}` must hold one list per query, but there are {len(lists)} lists and "
            f"{num_queries} queries. Pass an empty list for a query that has none."
        )
    arrays = [whole_numbers(part, None, f"{name}[{i}]") for i, part in enumerate(lists)]
    items = np.concatenate(arrays)
    row = np.repeat(np.arange(num_queries), [len(part) for part in arrays])
    outside = np.flatnonzero((items < 0) | (items >= num_gallery))
    if len(outside):
        where = outside[0]
        raise DataError(
            f"`{name}` must hold rows of the gallery, 0 to {num_gallery - 1}, but the list of "
            f"query {row[where]} holds {items[where]}. Check that lists and gallery belong "
            "together."
        )
    row, items = np.divmod(np.unique(row * num_gallery + items), num_gallery)
    stop = np.bincount(row, minlength=num_queries).cumsum()
    return Lists(np.concatenate([[0], stop[:-1]]), stop, torch.from_numpy(items))


def both_sides(
    query_values: Any,
    gallery_values: Any,
    sizes: tuple[int, int],
    name: str,
) -> Sides | None:
    """Returns checked integers per query and per gallery item; None if there are none.

    Texts are numbered.
    """
    if query_values is None and gallery_values is None:
        return None
    if query_values is None or gallery_values is None:
        have, miss = ("gallery", "query") if query_values is None else ("query", "gallery")
        raise DataError(
            f"`query_{name}` and `gallery_{name}` go together, but only `{have}_{name}` is given. "
            f"Pass `{miss}_{name}` too, or neither."
        )
    if any(is_text(values) for values in (query_values, gallery_values)):
        query_values, gallery_values = numbered(query_values, gallery_values, name)
    return (
        whole_numbers(query_values, sizes[0], f"query_{name}"),
        whole_numbers(gallery_values, sizes[1], f"gallery_{name}"),
    )


def is_text(values: Any) -> bool:
    """Whether values are text or objects, not numbers."""
    return not isinstance(values, Tensor) and np.asarray(values).dtype.kind in "UOTS"


def numbered(
    query_values: Any, gallery_values: Any, name: str
) -> tuple[Int[np.ndarray, " query"], Int[np.ndarray, " gallery"]]:
    """Numbers text of both sides alike.

    Example:
        >>> numbered(["b", "a"], ["a", "c"], "labels")
        (array([1, 0]), array([0, 2]))
    """
    from nobackfill.vectors.arrays import key_of

    query, gallery = (
        key_of(query_values, f"query_{name}"),
        key_of(gallery_values, f"gallery_{name}"),
    )
    if query.dtype.kind != gallery.dtype.kind:
        raise DataError(
            f"`query_{name}` and `gallery_{name}` must be of one kind, but start with "
            f"{query[:1].tolist()} and {gallery[:1].tolist()}. Convert one of them."
        )
    _, number = np.unique(np.concatenate([query, gallery]), return_inverse=True)
    return number[: len(query)], number[len(query) :]


def whole_numbers(values: Integers, length: int | None, name: str) -> Int[np.ndarray, " values"]:
    """Converts integers of any container to an int64 array, and checks its length."""
    array = values.detach().cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)
    if array.size == 0:
        array = array.astype(np.int64)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise DataError(
            f"`{name}` must be a flat list of integers, but it has dtype {array.dtype} and shape "
            f"{array.shape}. Number the labels 0, 1, 2, ... first, e.g. with "
            "`np.unique(labels, return_inverse=True)[1]`."
        )
    if length is not None and len(array) != length:
        raise DataError(
            f"`{name}` must hold one value per vector, but there are {len(array)} values and "
            f"{length} vectors. Check that both were taken from the same items, in one order."
        )
    return array.astype(np.int64, copy=False)
