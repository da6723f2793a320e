"""Metrics of rankings, from the ranks of the relevant items of each query."""

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from nobackfill.errors import ConfigError

AREAS = ("step", "trapezoid")


def average_precision(
    ranks: Int[Tensor, " hits"],
    num_relevant: Int[Tensor, " query"],
    *,
    at: int | None = None,
    area: str = "step",
) -> Float[Tensor, " query"]:
    r"""Returns the average precision of each query, from the ranks of its relevant items.

    .. math::
        \mathrm{AP@}k = \frac{1}{\min(R, k)} \sum_{j : r_j \le k} p_j, \qquad
        p_j = \frac{j}{r_j} \;\text{(step)}, \quad
        p_j = \frac{1}{2} \Bigl( \frac{j - 1}{r_j - 1} + \frac{j}{r_j} \Bigr) \;\text{(trapezoid)},

    with :math:`r_1 < r_2 < \dots < r_R` the ranks, from 1, and :math:`k` infinite without `at`.
    The first fraction of the trapezoid is 1 if :math:`r_j = 1`.

    Args:
        ranks: Ranks of query 0, ascending, then those of query 1, and so on.
        num_relevant: Number of ranks of each query, :math:`R`.
        at: Cut-off rank :math:`k`.
        area: Area under the precision-recall curve, by "step" or by "trapezoid".

    Returns:
        One float64 in [0, 1] per query; NaN if nothing is relevant.

    Example:
        >>> average_precision(torch.tensor([1, 2, 5]), torch.tensor([3, 0]))
        tensor([0.8667,    nan], dtype=torch.float64)
        >>> average_precision(torch.tensor([1, 2, 5]), torch.tensor([3]), area="trapezoid")
        tensor([0.8500], dtype=torch.float64)
    """
    rank, number = ranks.numpy(), num_relevant.numpy()  # torch threads would wait for each other
    start = number.cumsum() - number
    hit = np.arange(1, len(rank) + 1) - np.repeat(start, number)  # j
    precision = hit / rank
    if area == "trapezoid":
        before = np.where(rank == 1, 1.0, (hit - 1) / np.maximum(rank - 1, 1))
        precision = (before + precision) / 2
    if at is not None:
        precision *= rank <= at
        number = np.minimum(number, at)  # the most hits that fit
    mean, counted = np.full(len(number), np.nan), number > 0
    mean[counted] = np.add.reduceat(precision, start[counted]) / number[counted]
    return torch.from_numpy(mean)


def ndcg(
    ranks: Int[Tensor, " hits"], num_relevant: Int[Tensor, " query"], *, at: int
) -> Float[Tensor, " query"]:
    r"""Returns the normalised discounted cumulative gain of each query, with binary relevance.

    .. math::
        \mathrm{nDCG@}k = \frac{\sum_{j : r_j \le k} 1 / \log_2(r_j + 1)}
        {\sum_{i=1}^{\min(R, k)} 1 / \log_2(i + 1)}

    with the rank :math:`r_j` of the `j`-th of `R` relevant items; NaN if `R` is 0.

    Example:
        >>> ndcg(torch.tensor([2]), torch.tensor([1]), at=10)  # log 2 / log 3
        tensor([0.6309], dtype=torch.float64)
    """
    check_settings(at, "step")
    query = torch.repeat_interleave(torch.arange(len(num_relevant)), num_relevant)
    gain = torch.where(ranks <= at, 1 / (ranks.double() + 1).log2(), 0.0)
    total = torch.zeros(len(num_relevant), dtype=torch.float64).index_add(0, query, gain)
    ideal = (1 / torch.arange(2, at + 2).double().log2()).cumsum(0)
    best = ideal[num_relevant.clamp(1, at) - 1]
    return torch.where(num_relevant > 0, total / best, torch.nan)


def first_hit(
    ranks: Int[Tensor, " hits"], num_relevant: Int[Tensor, " query"], *, at: int | None = None
) -> Int[Tensor, " query"]:
    """Returns the rank of the best relevant item of each query; 0 if there is none (up to `at`).

    Example:
        >>> first_hit(torch.tensor([2, 3, 9]), torch.tensor([2, 0, 1]), at=5)
        tensor([2, 0, 0])
    """
    counted = num_relevant.numpy() > 0
    hit = np.zeros(len(counted), dtype=np.int64)
    hit[counted] = ranks.numpy()[offsets(num_relevant).numpy()[:-1][counted]]
    return torch.from_numpy(hit if at is None else np.where(hit <= at, hit, 0))


def offsets(num_relevant: Int[Tensor, " query"]) -> Int[Tensor, " query_and_one"]:
    """Returns the start of each query's part of a flat list, and the length of the list."""
    return torch.cat([num_relevant.new_zeros(1), num_relevant.cumsum(0)])


def check_settings(at: int | None, area: str) -> None:
    """Raises if a setting is invalid."""
    if at is not None and at < 1:
        raise ConfigError(
            f"`at` cuts the ranking at a rank from 1, but it is {at}. Pass 1 or more, or leave it "
            "out for the whole ranking."
        )
    if area not in AREAS:
        raise ConfigError(
            f"`area` must be one of {', '.join(AREAS)}, but it is {area!r}. Use 'step' "
            "for plain average precision, 'trapezoid' for ROxford and RParis."
        )
