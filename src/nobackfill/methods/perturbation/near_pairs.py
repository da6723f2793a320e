"""Which prototypes are, or may soon be, too near: looked up once, good for many steps."""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from nobackfill.methods.perturbation.crowding import crowding_gradient
from nobackfill.ops.matmul import empty_products, inner_products

BLOCK_BYTES = 256 * 2**20  # of products looked through at once
MARGIN = 0.2  # how far below the threshold a pair is still listed
DENSE = 64  # one pair in so many listed: comparing all is as fast
MOST = 2**26  # pairs listed, for the sake of memory
AT_A_TIME = {"cpu": 2**12, "cuda": 2**20}  # pairs compared: as many as fit the cache, or more
ROUNDING = 2**-6  # by how much a product in bfloat16 may be wrong, for unit vectors


class NearPairs:
    r"""The crowding gradient at places that move little from one step to the next.

    Prototypes that take small steps meet the same neighbours for a while. All pairs with
    :math:`x_c^\top o_j > \theta - m` are listed once, with places :math:`x^0, o^0`. As

    .. math::
        |x_c^\top o_j - x_c^{0\top} o_j^0| \;\le\;
        \lVert x_c - x_c^0 \rVert \lVert o_j \rVert + \lVert x_c^0 \rVert \lVert o_j - o_j^0 \rVert,

    no pair outside the list can be too near until the right side, taken at its largest, exceeds
    :math:`m`: then the list is made anew. So the result is that of `crowding_gradient`, in fewer
    operations by about the share of listed pairs. Where that share is high, it *is* that function.

    Args:
        threshold: :math:`\theta`.
        margin: :math:`m`.
    """

    def __init__(self, threshold: float, *, margin: float = MARGIN):
        self.threshold, self.margin = threshold, margin
        self.lists_made = 0
        self._at: tuple[Tensor, Tensor] | None = None
        self._rows: Int[Tensor, " pairs"] | None = None
        self._others: Int[Tensor, " pairs"] | None = None
        self._first: Int[Tensor, " classes"] | None = None

    def gradient(
        self, x: Float[Tensor, "classes dim"], others: Float[Tensor, "classes dim"]
    ) -> Float[Tensor, "classes dim"]:
        """The same as `crowding_gradient`, for places near the last ones."""
        if self._at is None or drift(*self._at, x, others) > self.margin:
            self._look_up(x, others)
        if self._rows is None or self._others is None or self._first is None:
            return crowding_gradient(x, others, self.threshold)
        return listed_gradient(
            x, others, self._rows, self._others, self._first, threshold=self.threshold
        )

    def _look_up(self, x: Tensor, others: Tensor) -> None:
        """Lists the pairs, or nothing where they are too many."""
        self._at = x.clone(), others.clone()
        self.lists_made += 1
        most = min(MOST, len(x) ** 2 // DENSE)
        pairs = near_pairs(x, others, self.threshold - self.margin, most=most)
        if pairs is None:
            self._rows = self._others = self._first = None
            return
        self._rows, self._others = pairs
        counts = torch.bincount(self._rows, minlength=len(x))
        self._first = (counts.cumsum(0) - counts).to(self._rows.dtype)


def drift(
    x0: Float[Tensor, "classes dim"],
    others0: Float[Tensor, "classes dim"],
    x: Float[Tensor, "classes dim"],
    others: Float[Tensor, "classes dim"],
) -> float:
    r"""By how much an inner product of two rows can have changed, at most.

    .. math::
        \max_c \lVert x_c - x_c^0 \rVert \max_j \lVert o_j \rVert +
        \max_c \lVert x_c^0 \rVert \max_j \lVert o_j - o_j^0 \rVert
    """
    moved = (x - x0).norm(dim=1).max() * others.norm(dim=1).max()
    return float(moved + x0.norm(dim=1).max() * (others - others0).norm(dim=1).max())


def near_pairs(
    x: Float[Tensor, "classes dim"],
    others: Float[Tensor, "classes dim"],
    threshold: float,
    *,
    most: int,
    block: int | None = None,
) -> tuple[Int[Tensor, " pairs"], Int[Tensor, " pairs"]] | None:
    """All pairs of different rows above a threshold, in order; None where they exceed `most`.

    On a GPU they are looked for in bfloat16, and a few more are found than asked for, never fewer.
    On a CPU, where the `others` are `x` itself, each pair is looked for once, and turned round.
    `block` rows are compared at a time, by default what fits into 256 MB.
    """
    once = others is x and x.device.type == "cpu"
    if x.is_cuda:
        longest = float(x.norm(dim=1).max() * others.norm(dim=1).max())
        threshold -= ROUNDING * longest
        x, others = x.bfloat16(), others.bfloat16()
    block = block or max(1, BLOCK_BYTES // (len(others) * x.element_size()))
    products = empty_products(x, min(block, len(x)), len(others))
    rows, other_rows, found = [], [], 0
    for start in range(0, len(x), block):
        part, first = x[start : start + block], start if once else 0
        to_compare = others[first:]
        room = products[: len(part), : len(to_compare)]
        near = inner_products(part, to_compare, room) > threshold
        if once:
            near[:, : len(part)].triu_(1)  # the first of two classes meets the second
        else:
            near.diagonal(offset=start).zero_()  # a class is not its own neighbour
        row, other = near.nonzero().int().unbind(1)
        found += len(row) * (2 if once else 1)
        if found > most:
            return None
        rows.append(row + start)
        other_rows.append(other + first)
    pairs = torch.cat(rows), torch.cat(other_rows)
    return both_ways(*pairs, number=len(x)) if once else pairs


def both_ways(
    rows: Int[Tensor, " pairs"], other_rows: Int[Tensor, " pairs"], *, number: int
) -> tuple[Int[Tensor, " both"], Int[Tensor, " both"]]:
    """Each pair and its reverse, in order, of rows below `number`.

    Example:
        >>> both_ways(torch.tensor([0, 1]), torch.tensor([2, 2]), number=3)
        (tensor([0, 1, 2, 2], dtype=torch.int32), tensor([2, 2, 0, 1], dtype=torch.int32))
    """
    row, other = rows.long(), other_rows.long()
    pair = torch.cat([row * number + other, other * number + row])
    pair.numpy().sort()  # in place
    return (pair // number).int(), (pair % number).int()


def listed_gradient(
    x: Float[Tensor, "classes dim"],
    others: Float[Tensor, "classes dim"],
    rows: Int[Tensor, " pairs"],
    other_rows: Int[Tensor, " pairs"],
    first: Int[Tensor, " classes"],
    *,
    threshold: float,
) -> Float[Tensor, "classes dim"]:
    r"""The gradient of the hinge summed over listed pairs, `others` held fixed.

    .. math::
        \sum_{(c, j)} \mathbb{1}[x_c^\top o_j > \theta]\; o_j

    Args:
        x: The places whose gradient it is.
        others: Their neighbours' places.
        rows: Row of `x` of each pair, in ascending order.
        other_rows: Row of `others` of each pair.
        first: Where the pairs of each row of `x` begin.
        threshold: :math:`\theta`.
    """
    size = AT_A_TIME.get(x.device.type, 2**16)
    pieces = zip(rows.split(size), other_rows.split(size), strict=True)
    inner = [  # `index_select` is faster than brackets
        x.index_select(0, row).mul_(others.index_select(0, other)).sum(dim=1)
        for row, other in pieces
    ]
    too_near = (torch.cat(inner) > threshold).to(x.dtype)
    return F.embedding_bag(other_rows, others, first, mode="sum", per_sample_weights=too_near)
