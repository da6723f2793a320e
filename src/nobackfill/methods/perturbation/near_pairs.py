"""Lists of prototype pairs that are, or may soon be, too close; each serves many steps."""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from nobackfill.methods.perturbation.crowding import crowding_gradient
from nobackfill.ops.matmul import empty_products, inner_products

BLOCK_BYTES = 256 * 2**20  # of products searched at once
MARGIN = 0.2  # largest distance of a listed pair below the threshold, m
DENSE = 64  # if one pair in so many is listed, comparing all is as fast
MOST = 2**26  # listed pairs, which limits memory
AT_A_TIME = {"cpu": 2**12, "cuda": 2**20}  # pairs compared together; on a CPU they fit its cache
ROUNDING = 2**-6  # largest error of a product of unit vectors in bfloat16


class NearPairs:
    r"""The crowding gradient of prototypes that move little from one step to the next.

    Such prototypes keep their neighbours for a while. All pairs with :math:`x_c^\top o_j > \theta -
    m` are listed once, together with the prototypes of that moment, :math:`x^0, o^0`. Because

    .. math::
        |x_c^\top o_j - x_c^{0\top} o_j^0| \;\le\;
        \lVert x_c - x_c^0 \rVert \lVert o_j \rVert + \lVert x_c^0 \rVert \lVert o_j - o_j^0 \rVert,

    no other pair can be too close until the maximum of the right side exceeds :math:`m`; then the
    list is made anew. The result is that of `crowding_gradient`, in fewer operations by about the
    share of listed pairs. If that share is high, it calls that function.

    Args:
        threshold: Threshold of the hinge, :math:`\theta`.
    """

    def __init__(self, threshold: float):
        self.threshold = threshold
        self.lists_made = 0
        self._start: tuple[Tensor, Tensor] | None = None  # prototypes when the list was made
        self._listed: tuple[Tensor, Tensor, Tensor] | None = None

    def gradient(
        self, x: Float[Tensor, "classes dim"], others: Float[Tensor, "classes dim"]
    ) -> Float[Tensor, "classes dim"]:
        """Computes the same as `crowding_gradient`."""
        # List the pairs anew, unless there are too many.
        if self._start is None or drift(*self._start, x, others) > MARGIN:
            self._start = x.clone(), others.clone()
            self.lists_made += 1
            most = min(MOST, len(x) ** 2 // DENSE)
            pairs = near_pairs(x, others, self.threshold - MARGIN, most=most)
            self._listed = None if pairs is None else (*pairs, row_starts(pairs[0], len(x)))
        if self._listed is None:
            return crowding_gradient(x, others, self.threshold)
        return listed_gradient(x, others, *self._listed, threshold=self.threshold)


def drift(
    x0: Float[Tensor, "classes dim"],
    others0: Float[Tensor, "classes dim"],
    x: Float[Tensor, "classes dim"],
    others: Float[Tensor, "classes dim"],
) -> float:
    """Returns the maximum of the right side above: the largest change of an inner product."""
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
    """Returns all pairs of different rows above a threshold, in order; None if more than `most`.

    A GPU compares in bfloat16, which finds a few pairs below the threshold too. A CPU compares each
    pair once if `others` is `x` itself, and adds its reverse. `block` rows are compared at a time.
    """
    once = others is x and x.device.type == "cpu"
    if x.is_cuda:
        longest = float(x.norm(dim=1).max() * others.norm(dim=1).max())
        threshold -= ROUNDING * longest
        x, others = x.bfloat16(), others.bfloat16()
    block = block or max(1, BLOCK_BYTES // (len(others) * x.element_size()))
    products = empty_products(x, min(block, len(x)), len(others))
    rows, other_rows, count = [], [], 0
    for start in range(0, len(x), block):
        part, first = x[start : start + block], start if once else 0
        columns = others[first:]
        product = inner_products(part, columns, products[: len(part), : len(columns)])
        near = product > threshold
        if once:
            near[:, : len(part)].triu_(1)  # within the block, each pair once
        else:
            near.diagonal(offset=start).zero_()  # a class is not its own neighbour
        row, other = near.nonzero().int().unbind(1)
        count += len(row) * (2 if once else 1)
        if count > most:
            return None
        rows.append(row + start)
        other_rows.append(other + first)
    pairs = torch.cat(rows), torch.cat(other_rows)
    return both_ways(*pairs, number=len(x)) if once else pairs


def both_ways(
    rows: Int[Tensor, " pairs"], other_rows: Int[Tensor, " pairs"], *, number: int
) -> tuple[Int[Tensor, " both"], Int[Tensor, " both"]]:
    """Returns each pair and its reverse, in order; rows are below `number`."""
    row, other = rows.long(), other_rows.long()
    pair = torch.cat([row * number + other, other * number + row])
    pair.numpy().sort()  # in place
    return (pair // number).int(), (pair % number).int()


def row_starts(rows: Int[Tensor, " pairs"], number: int) -> Int[Tensor, " classes"]:
    """Returns where the pairs of each row begin, if `rows` ascend."""
    counts = torch.bincount(rows, minlength=number)
    return (counts.cumsum(0) - counts).to(rows.dtype)


def listed_gradient(
    x: Float[Tensor, "classes dim"],
    others: Float[Tensor, "classes dim"],
    rows: Int[Tensor, " pairs"],
    other_rows: Int[Tensor, " pairs"],
    first: Int[Tensor, " classes"],
    *,
    threshold: float,
) -> Float[Tensor, "classes dim"]:
    """Computes the gradient over listed pairs; those of row `c` of `x` begin at `first[c]`."""
    size = AT_A_TIME.get(x.device.type, 2**16)
    pieces = zip(rows.split(size), other_rows.split(size), strict=True)
    inner = [  # `index_select` is faster than brackets
        x.index_select(0, row).mul_(others.index_select(0, other)).sum(dim=1)
        for row, other in pieces
    ]
    too_near = (torch.cat(inner) > threshold).to(x.dtype)
    return F.embedding_bag(other_rows, others, first, mode="sum", per_sample_weights=too_near)
