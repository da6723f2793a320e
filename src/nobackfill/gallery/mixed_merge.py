"""Merges rankings of two galleries."""

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from nobackfill.errors import DataError


def merge_rankings(
    first: tuple[Int[Tensor, "query first"], Float[Tensor, "query first"]],
    second: tuple[Int[Tensor, "others second"], Float[Tensor, "others second"]],
    k: int,
) -> tuple[Int[Tensor, "query {k}"], Float[Tensor, "query {k}"]]:
    """Merges the results of the same queries in two galleries, by score.

    Each gallery is searched with its own query vectors: the old one with those of the old model or
    with mapped new ones, the new one with those of the new model. Scores must be comparable. An
    item of both galleries counts once, at its better rank. Among equal scores, items of `first`
    come first.

    Args:
        first: Items and scores, best first, as returned by `nearest`; both galleries number items
            alike.
        second: Items and scores of the other gallery.
        k: Number of items; missing ones become item -1 with score minus infinity.

    Example:
        >>> old = (torch.tensor([[7, 3]]), torch.tensor([[0.9, 0.5]]))
        >>> new = (torch.tensor([[3, 5]]), torch.tensor([[0.8, 0.6]]))
        >>> merge_rankings(old, new, k=4)
        (tensor([[ 7,  3,  5, -1]]), tensor([[0.9000, 0.8000, 0.6000,   -inf]]))
    """
    if k < 1:
        raise DataError(f"k must be at least 1, but k is {k}.")
    if len(first[0]) != len(second[0]):
        raise DataError(
            f"Both rankings must be of the same queries, but one has {len(first[0])} and the other "
            f"{len(second[0])}. Search both galleries with the same queries, in the same order."
        )
    # Sort all entries by score, then move repeated items to the end.
    scores, order = torch.cat([first[1], second[1]], dim=1).sort(
        dim=1, descending=True, stable=True
    )
    items = torch.cat([first[0], second[0]], dim=1).gather(1, order)
    kept = (~seen_before(items)).to(torch.int8)
    place = kept.argsort(dim=1, descending=True, stable=True)
    kept = kept.gather(1, place).bool()
    items = items.gather(1, place).where(kept, -1)[:, :k]
    scores = scores.gather(1, place).where(kept, -torch.inf)[:, :k]
    lacking = (0, max(0, k - items.shape[1]))
    return F.pad(items, lacking, value=-1), F.pad(scores, lacking, value=-torch.inf)


def seen_before(items: Int[Tensor, "query found"]) -> Bool[Tensor, "query found"]:
    """Marks the entries of each row that repeat an earlier one."""
    ordered, order = items.sort(dim=1, stable=True)
    repeated = torch.zeros_like(items, dtype=torch.bool)
    repeated[:, 1:] = ordered[:, 1:] == ordered[:, :-1]
    return torch.zeros_like(repeated).scatter(1, order, repeated)
