"""One ranking out of two galleries."""

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from nobackfill.errors import DataError


def merge_rankings(
    one: tuple[Int[Tensor, "query one"], Float[Tensor, "query one"]],
    other: tuple[Int[Tensor, "others other"], Float[Tensor, "others other"]],
    k: int,
) -> tuple[Int[Tensor, "query {k}"], Float[Tensor, "query {k}"]]:
    """Merges what the same queries found in two galleries, by score.

    Each query asks each gallery with the vector that is meant for it: the old gallery with the old
    model's, or with the mapped new one; the new gallery with the new model's. The scores must mean
    the same on both sides. An item that stands in both galleries counts once, at its better place;
    equal scores keep `one` before `other`.

    Args:
        one: Items and scores, best first, as `nearest` returns them; items are numbered alike in
            both.
        other: The same of the other gallery.
        k: How many to keep. Where there are fewer, the rest is item -1 with score minus infinity.

    Example:
        >>> old = (torch.tensor([[7, 3]]), torch.tensor([[0.9, 0.5]]))
        >>> new = (torch.tensor([[3, 5]]), torch.tensor([[0.8, 0.6]]))
        >>> merge_rankings(old, new, k=4)
        (tensor([[ 7,  3,  5, -1]]), tensor([[0.9000, 0.8000, 0.6000,   -inf]]))
    """
    if k < 1:
        raise DataError(f"at least one item can be asked for, but k is {k}. Pass k=1 or more.")
    if len(one[0]) != len(other[0]):
        raise DataError(
            f"wanted two rankings of the same queries, but one has {len(one[0])} and the other "
            f"{len(other[0])}. Ask both galleries with the same queries, in the same order."
        )
    scores, order = torch.cat([one[1], other[1]], dim=1).sort(dim=1, descending=True, stable=True)
    items = torch.cat([one[0], other[0]], dim=1).gather(1, order)
    kept = (~seen_before(items)).to(torch.int8)
    place = kept.argsort(dim=1, descending=True, stable=True)  # what was seen before goes last
    kept = kept.gather(1, place).bool()
    items = items.gather(1, place).where(kept, -1)[:, :k]
    scores = scores.gather(1, place).where(kept, -torch.inf)[:, :k]
    lacking = (0, max(0, k - items.shape[1]))
    return (
        F.pad(items, lacking, value=-1),
        F.pad(scores, lacking, value=-torch.inf),
    )


def seen_before(items: Int[Tensor, "query found"]) -> Bool[Tensor, "query found"]:
    """Which entries of each row repeat an earlier one.

    Example:
        >>> seen_before(torch.tensor([[4, 2, 4, 4]]))
        tensor([[False, False,  True,  True]])
    """
    ordered, order = items.sort(dim=1, stable=True)
    repeated = torch.zeros_like(items, dtype=torch.bool)
    repeated[:, 1:] = ordered[:, 1:] == ordered[:, :-1]
    return torch.zeros_like(repeated).scatter(1, order, repeated)
