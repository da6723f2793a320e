"""Geometry of an embedding space: spread, uniformity and similarity of classes.

Only `pair_cosines`, for few classes, holds the cosines of all pairs in memory.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from nobackfill.core.short import Short
from nobackfill.ops.nearest import rows_per_block

MOST_ROWS = 10_000  # rows whose pairs `uniformity` compares


def pair_cosines(prototypes: Float[Tensor, "classes dim"]) -> Float[Tensor, " pairs"]:
    """Returns the cosine of every pair of different classes, each pair once, row by row."""
    unit = F.normalize(prototypes, dim=-1)
    row, column = torch.triu_indices(len(unit), len(unit), offset=1, device=unit.device)
    return (unit @ unit.T)[row, column]


def cosine_spread(
    prototypes: Float[Tensor, "classes dim"], *, center: bool = False, block: int | None = None
) -> float:
    r"""Returns the standard deviation of cosines between prototypes: low if they spread evenly.

    .. math::
        \mathrm{std}_{c < c'}\, \cos(\mu_c - m, \mu_{c'} - m), \qquad
        m = \bar\mu \;\text{with `center`, else } 0

    Papyan et al. subtract the mean of all classes; the paper does not specify it.

    No pair is computed. With the unit rows :math:`u_c` and :math:`G = \sum_c u_c u_c^\top`,

    .. math::
        \sum_{c, c'} u_c^\top u_{c'} = \Big\lVert \sum_c u_c \Big\rVert^2, \qquad
        \sum_{c, c'} (u_c^\top u_{c'})^2 = \lVert G \rVert_F^2,

    minus the terms of :math:`c = c'`. Sums are in float64; the result is exact to about 1e-8.
    """
    classes, dim = prototypes.shape
    if classes < 2:
        return float("nan")
    mean = prototypes.mean(dim=0, dtype=torch.float64)
    shift = mean if center else torch.zeros_like(mean)
    total, gram, alone = torch.zeros_like(shift), shift.new_zeros(dim, dim), shift.new_zeros(())
    for rows in prototypes.split(block or rows_per_block(8 * dim)):
        unit = F.normalize(rows.double() - shift, dim=-1)
        total += unit.sum(dim=0)
        gram += unit.T @ unit
        alone += unit.square().sum()  # terms of c = c': 1, or 0 for a zero vector
    sums = torch.stack([total.square().sum(), gram.square().sum()]) - alone
    first, second = (sums / (classes * (classes - 1))).tolist()
    return float(max(0.0, second - first**2) ** 0.5)


def uniformity(vectors: Float[Tensor, "items dim"], *, block: int | None = None) -> float:
    r"""Returns the uniformity of vectors on the sphere (Wang & Isola, 2020): lower is more even.

    .. math::
        \log \frac{2}{n (n - 1)} \sum_{i < j} e^{-2 \lVert u_i - u_j \rVert^2}

    over pairs of different items, with unit rows :math:`u`. It is 0 if all rows are equal, and
    about -4 for random directions in many dimensions. More than 10,000 rows are reduced to 10,000
    evenly chosen ones.

    Example:
        >>> uniformity(torch.eye(3).double())
        -4.0
    """
    if len(vectors) < 2:
        return float("nan")
    if len(vectors) > MOST_ROWS:
        rows = torch.arange(MOST_ROWS, device=vectors.device) * len(vectors) // MOST_ROWS
        vectors = vectors[rows]
    unit = _unit(vectors)
    block = block or rows_per_block(len(unit) * unit.element_size())
    total = 0.0
    for first in range(0, len(unit), block):
        cosine = unit[first : first + block] @ unit[first:].T
        nearness = (4 * cosine - 4).exp().triu(1)  # later rows only: each pair once
        total += float(nearness.sum(dtype=torch.float64))
    pairs = len(unit) * (len(unit) - 1) // 2
    return float(torch.tensor(total / pairs, dtype=torch.float64).log())


@dataclass(frozen=True, eq=False, repr=False)
class SimilarityHistogram(Short):
    """Cosines of selected pairs of classes in several spaces. All tensors are on the CPU."""

    alike_in: tuple[str, ...]  # spaces in which every selected pair has a cosine above 0
    pairs: int  # number of selected pairs
    edges: Float[Tensor, " edges"]  # edges of the bins, from -1 to 1
    # Number of pairs in each bin, by space. A bin includes its lower edge; the last one
    # includes both
    counts: Mapping[str, Int[Tensor, " bins"]]
    mean: Mapping[str, float]  # mean cosine, by space; NaN if there is no pair
    # share of pairs with a cosine below 0, by space; NaN if there is no pair
    below_zero: Mapping[str, float]


def similarity_histogram(
    prototypes: Mapping[str, Float[Tensor, "_ _"]],
    alike_in: Sequence[str] = ("old", "baseline"),
    *,
    bins: int = 100,
    block: int | None = None,
) -> SimilarityHistogram:
    r"""Histograms of the cosines, in every space, of classes that are similar in some of them.

    .. math::
        n_b^s = \big|\{c < c' : \cos(\mu_c^s, \mu_{c'}^s) \in \mathrm{bin}_b, \;
        \cos(\mu_c^a, \mu_{c'}^a) > 0 \;\forall a \in A\}\big|

    with the prototypes :math:`\mu_c^s` of space `s`, not centred, and the spaces `A` in `alike_in`.

    Example:
        >>> old = torch.tensor([[1.0, 0.0], [0.8, 0.6], [-1.0, 0.0]])
        >>> new = torch.tensor([[1.0, 0.0], [-0.6, 0.8], [0.0, 1.0]])
        >>> histogram = similarity_histogram({"old": old, "new": new}, ["old"], bins=4)
        >>> histogram.pairs, histogram.counts["old"].tolist(), histogram.counts["new"].tolist()
        (1, [0, 0, 0, 1], [1, 0, 0, 0])
    """
    classes = len(next(iter(prototypes.values())))
    unit = {name: _unit(rows) for name, rows in prototypes.items()}
    block = block or rows_per_block(sum(u.element_size() for u in unit.values()) * classes)
    edges = (2 * torch.arange(bins + 1, dtype=torch.float64) - bins) / bins  # exact at 0
    counts = {name: torch.zeros(bins, dtype=torch.int64) for name in unit}
    total, below, pairs = dict.fromkeys(unit, 0.0), dict.fromkeys(unit, 0.0), 0
    for first in range(0, classes, block):
        # select the pairs of a block
        cosine = {name: u[first : first + block] @ u[first:].T for name, u in unit.items()}
        chosen = torch.ones_like(next(iter(cosine.values())), dtype=torch.bool).triu(1)
        for name in alike_in:
            chosen &= cosine[name] > 0
        places = chosen.flatten().nonzero().flatten()
        pairs += len(places)
        # count them in every space
        for name in unit:
            values = cosine.pop(name).flatten().index_select(0, places).double().cpu()
            bin_of = ((values + 1) * (bins / 2)).long().clamp(0, bins - 1)  # rounding may exceed 1
            counts[name] += bin_of.bincount(minlength=bins)
            total[name] += float(values.sum())
            below[name] += float((values < 0).sum())
    mean, below_zero = (
        {name: value / pairs if pairs else float("nan") for name, value in sums.items()}
        for sums in (total, below)
    )
    return SimilarityHistogram(tuple(alike_in), pairs, edges, counts, mean, below_zero)


def _unit(vectors: Float[Tensor, "rows dim"]) -> Float[Tensor, "rows dim"]:
    """Returns the rows at unit length, in float32 or better."""
    return F.normalize(vectors.to(torch.promote_types(vectors.dtype, torch.float32)), dim=-1)


def crowded_groups(
    prototypes: Float[Tensor, "classes dim"], groups: Int[Tensor, " classes"], count: int
) -> list[int]:
    """Returns the groups of classes with the highest mean cosine between prototypes, in order."""
    unit = F.normalize(prototypes, dim=-1)
    crowdedness = {}
    for group in groups.unique().tolist():
        members = unit[groups == group]
        if len(members) > 1:
            crowdedness[group] = pair_cosines(members).mean().item()
    return sorted(crowdedness, key=lambda group: -crowdedness[group])[:count]
