"""What a space looks like: how crowded its prototypes are, and a plane to see them on.

Nothing here holds the cosines of all pairs but `pair_cosines`, which is for few classes.
"""

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from nobackfill.core.config import suggest
from nobackfill.errors import ConfigError, DataError
from nobackfill.ops.nearest import check_finite, rows_per_block

MOST_ROWS = 10_000  # of which `uniformity` compares all pairs
FEWEST_ROWS = 10  # below this, t-SNE has no neighbourhoods to keep
PERPLEXITY = 30.0  # of t-SNE: about how many neighbours a row has


def pair_cosines(prototypes: Float[Tensor, "classes dim"]) -> Float[Tensor, " pairs"]:
    """The cosine of every pair of different classes, each pair once, row by row.

    Example:
        >>> pair_cosines(torch.tensor([[1.0, 0.0], [2.0, 0.0], [0.0, 1.0]]))
        tensor([1., 0., 0.])
    """
    unit = F.normalize(prototypes, dim=-1)
    row, column = torch.triu_indices(len(unit), len(unit), offset=1, device=unit.device)
    return (unit @ unit.T)[row, column]


def cosine_spread(
    prototypes: Float[Tensor, "classes dim"], *, center: bool = False, block: int | None = None
) -> float:
    r"""The standard deviation of the cosines between prototypes: low where they are evenly apart.

    .. math::
        \mathrm{std}_{c < c'}\, \cos(\mu_c - m, \mu_{c'} - m), \qquad
        m = \bar\mu \;\text{with `center`, else } 0

    Papyan et al. subtract the mean of all classes, the paper does not say; so both can be had.

    No pair is ever looked at. With the unit rows :math:`u_c` and :math:`G = \sum_c u_c u_c^\top`,

    .. math::
        \sum_{c, c'} u_c^\top u_{c'} = \Big\lVert \sum_c u_c \Big\rVert^2, \qquad
        \sum_{c, c'} (u_c^\top u_{c'})^2 = \lVert G \rVert_F^2,

    less what a class has with itself. Sums are in float64; the result is right to about 1e-8.

    Args:
        prototypes: One row per class. Of fewer than two classes the spread is NaN.
        center: Whether the mean of all classes is subtracted first.
        block: How many rows to add at once; by default what fits into 64 MB.
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
        alone += unit.square().sum()  # a class with itself: 1, or 0 where it has no direction
    sums = torch.stack([total.square().sum(), gram.square().sum()]) - alone
    first, second = (sums / (classes * (classes - 1))).tolist()
    return float(max(0.0, second - first**2) ** 0.5)


def alignment(
    query: Float[Tensor, "query dim"],
    gallery: Float[Tensor, "gallery dim"],
    query_labels: Int[Tensor, " query"],
    gallery_labels: Int[Tensor, " gallery"],
    *,
    ignored: Sequence[Sequence[int]] | None = None,
    block: int | None = None,
) -> float:
    r"""How far apart items of one class lie on the sphere (Wang & Isola, 2020): lower is better.

    .. math::
        \frac{1}{|P|} \sum_{(i, j) \in P} \lVert q_i - g_j \rVert^2
        = 2 - \frac{2}{|P|} \Big( \sum_c \Big(\sum_{y_i = c} q_i\Big)^{\!\top}
        \Big(\sum_{y_j = c} g_j\Big) - \sum_{(i, j) \in I} q_i^\top g_j \Big)

    with unit rows, the pairs :math:`P` of a query and a gallery item of one class, and those of
    them, :math:`I`, that are ignored. It is 0 where each class is one point, and about 2 where a
    class says nothing. Sums are in float64, and made by class, not pair by pair.

    Args:
        query: One row per query.
        gallery: One row per gallery item, of the same space.
        query_labels: The class of each query.
        gallery_labels: The class of each gallery item.
        ignored: For each query, the places in the gallery of what does not count, such as itself.
        block: How many rows to add at once; by default what fits into 64 MB.

    Returns:
        The mean over all pairs; NaN where there is none.

    Example:
        >>> x, labels = torch.eye(2), torch.tensor([0, 0])
        >>> alignment(x, x, labels, labels), alignment(x, x, labels, labels, ignored=[[0], [1]])
        (1.0, 2.0)
    """
    block = block or rows_per_block(8 * query.shape[1])
    query_labels, gallery_labels = (
        labels.to(query.device) for labels in (query_labels, gallery_labels)
    )
    classes = query_labels.unique()
    asking, asked = _class_sums(query, query_labels, classes, block)
    stored, held = _class_sums(gallery, gallery_labels, classes, block)
    cosines, pairs = float((asking * stored).sum()), int((asked * held).sum())
    out = sorted({(row, place) for row, some in enumerate(ignored or []) for place in some})
    for part in torch.tensor(out, dtype=torch.int64).reshape(-1, 2).to(query.device).split(block):
        row, place = part[query_labels[part[:, 0]] == gallery_labels[part[:, 1]]].unbind(1)
        one, other = (F.normalize(v.double(), dim=-1) for v in (query[row], gallery[place]))
        cosines -= float((one * other).sum())
        pairs -= len(row)
    return 2 - 2 * cosines / pairs if pairs else float("nan")


def _class_sums(
    vectors: Float[Tensor, "items dim"],
    labels: Int[Tensor, " items"],
    classes: Int[Tensor, " classes"],
    block: int,
) -> tuple[Float[Tensor, "classes dim"], Int[Tensor, " classes"]]:
    """The sum of the unit vectors of each class in float64, and how many it has."""
    rows = torch.isin(labels, classes).nonzero().flatten()
    number = torch.searchsorted(classes, labels[rows])
    sums = vectors.new_zeros(len(classes), vectors.shape[1], dtype=torch.float64)
    for row, to in zip(rows.split(block), number.split(block), strict=True):
        sums.index_add_(0, to, F.normalize(vectors[row].double(), dim=-1))
    return sums, number.bincount(minlength=len(classes))


def uniformity(vectors: Float[Tensor, "items dim"], *, block: int | None = None) -> float:
    r"""How evenly vectors cover the sphere (Wang & Isola, 2020): lower is more even.

    .. math::
        \log \frac{2}{n (n - 1)} \sum_{i < j} e^{-2 \lVert u_i - u_j \rVert^2}

    over pairs of different items, with unit rows :math:`u`. It is 0 where all are one point, and
    about -4 for random directions of many dimensions. Of more than 10,000 rows, 10,000 are taken,
    evenly chosen.

    Args:
        vectors: One row per item. Of fewer than two the result is NaN.
        block: How many rows to compare at once; by default what fits into 64 MB.

    Example:
        >>> uniformity(torch.eye(3).double())
        -4.0
    """
    if len(vectors) < 2:
        return float("nan")
    unit = _unit(_evenly(vectors, MOST_ROWS))
    block = block or rows_per_block(len(unit) * unit.element_size())
    total = 0.0
    for first in range(0, len(unit), block):
        cosine = unit[first : first + block] @ unit[first:].T
        nearness = (4 * cosine - 4).exp().triu(1)  # later rows only: each pair once
        total += float(nearness.sum(dtype=torch.float64))
    pairs = len(unit) * (len(unit) - 1) // 2
    return float(torch.tensor(total / pairs, dtype=torch.float64).log())


def _evenly(vectors: Float[Tensor, "items dim"], most: int) -> Float[Tensor, "some dim"]:
    """All rows, or `most` of them at even distances, the first among them."""
    if len(vectors) <= most:
        return vectors
    return vectors[torch.arange(most, device=vectors.device) * len(vectors) // most]


@dataclass(frozen=True, eq=False)
class SimilarityHistogram:
    """How similar some pairs of classes are in each of several spaces. All on the CPU.

    Attributes:
        alike_in: The spaces in all of which the cosine of each pair is above 0.
        pairs: How many pairs of classes these are.
        edges: Of the bins, from -1 to 1.
        counts: For each space, how many pairs have a cosine in each bin: from its lower edge to
            before its upper one, the last bin with its upper edge.
        mean: For each space, the mean cosine; NaN where there is no pair.
        below_zero: For each space, the share of pairs with a cosine below 0; NaN likewise.
    """

    alike_in: tuple[str, ...]
    pairs: int
    edges: Float[Tensor, " edges"]
    counts: Mapping[str, Int[Tensor, " bins"]]
    mean: Mapping[str, float]
    below_zero: Mapping[str, float]


def similarity_histogram(
    prototypes: Mapping[str, Float[Tensor, "_ _"]],
    alike_in: Sequence[str] = ("old", "baseline"),
    *,
    bins: int = 100,
    block: int | None = None,
) -> SimilarityHistogram:
    r"""What became of the classes that are alike, in every space: a histogram of their cosines.

    .. math::
        n_b^s = \big|\{c < c' : \cos(\mu_c^s, \mu_{c'}^s) \in \mathrm{bin}_b, \;
        \cos(\mu_c^a, \mu_{c'}^a) > 0 \;\forall a \in A\}\big|

    with the prototypes :math:`\mu_c^s` of space `s`, and the spaces `A` named by `alike_in`. They
    are not centred. Rows are compared in blocks, so that no more cosines are held than of one.

    Args:
        prototypes: For each space one row per class, of the same classes in the same order.
        alike_in: The spaces that choose the pairs; where none is named, all pairs are counted.
        bins: How many, of equal width, from -1 to 1. If even, 0 is an edge.
        block: How many classes to compare at once; by default what fits into 64 MB.

    Example:
        >>> old = torch.tensor([[1.0, 0.0], [0.8, 0.6], [-1.0, 0.0]])
        >>> new = torch.tensor([[1.0, 0.0], [-0.6, 0.8], [0.0, 1.0]])
        >>> found = similarity_histogram({"old": old, "new": new}, ["old"], bins=4)
        >>> found.pairs, found.counts["old"].tolist(), found.counts["new"].tolist()
        (1, [0, 0, 0, 1], [1, 0, 0, 0])
    """
    if bins < 1:
        raise ConfigError(f"wanted at least one bin, but got {bins}. Pass bins=1 or more.")
    classes = _classes_of_all(prototypes, alike_in)
    unit = {name: _unit(rows) for name, rows in prototypes.items()}
    block = block or rows_per_block(sum(u.element_size() for u in unit.values()) * classes)
    edges = (2 * torch.arange(bins + 1, dtype=torch.float64) - bins) / bins  # 0 is 0, not 1e-17
    counts = {name: torch.zeros(bins, dtype=torch.int64) for name in unit}
    total, below, pairs = dict.fromkeys(unit, 0.0), dict.fromkeys(unit, 0.0), 0
    for first in range(0, classes, block):
        cosine = {name: u[first : first + block] @ u[first:].T for name, u in unit.items()}
        chosen = torch.ones_like(next(iter(cosine.values())), dtype=torch.bool).triu(1)
        for name in alike_in:
            chosen &= cosine[name] > 0
        places = chosen.flatten().nonzero().flatten()
        pairs += len(places)
        for name in unit:
            values = cosine.pop(name).flatten().index_select(0, places).double().cpu()
            bin_of = ((values + 1) * (bins / 2)).long().clamp(0, bins - 1)  # rounding goes beyond 1
            counts[name] += bin_of.bincount(minlength=bins)
            total[name] += float(values.sum())
            below[name] += float((values < 0).sum())
    mean, below_zero = (
        {name: value / pairs if pairs else float("nan") for name, value in sums.items()}
        for sums in (total, below)
    )
    return SimilarityHistogram(tuple(alike_in), pairs, edges, counts, mean, below_zero)


def _classes_of_all(prototypes: Mapping[str, Float[Tensor, "_ _"]], alike_in: Sequence[str]) -> int:
    """How many classes there are; raises where spaces differ in that, or one is not there."""
    for name in alike_in:
        if name not in prototypes:
            raise ConfigError(f"no prototypes of the space `{name}`. {suggest(name, prototypes)}")
    sizes = {name: len(rows) for name, rows in prototypes.items()}
    if len(set(sizes.values())) != 1 or not all(sizes.values()):
        said = ", ".join(f"{size} of {name}" for name, size in sizes.items()) or "none"
        raise DataError(
            f"wanted prototypes of the same classes in every space, but got {said}. Take the class "
            f"means of the same items under each model."
        )
    return next(iter(sizes.values()))


def _unit(vectors: Float[Tensor, "rows dim"]) -> Float[Tensor, "rows dim"]:
    """Rows of unit length, in float32 or better."""
    return F.normalize(vectors.to(torch.promote_types(vectors.dtype, torch.float32)), dim=-1)


def crowded_groups(
    prototypes: Float[Tensor, "classes dim"], groups: Int[Tensor, " classes"], count: int
) -> list[int]:
    """The groups of classes whose prototypes lie nearest to each other, the most crowded first.

    Crowdedness is the mean cosine over the pairs of a group. Groups of one class have none.
    """
    unit = F.normalize(prototypes, dim=-1)
    crowdedness = {}
    for group in groups.unique().tolist():
        members = unit[groups == group]
        if len(members) > 1:
            crowdedness[group] = pair_cosines(members).mean().item()
    return sorted(crowdedness, key=lambda group: -crowdedness[group])[:count]


def principal_plane(
    vectors: Float[Tensor, "items dim"],
) -> tuple[Float[Tensor, " dim"], Float[Tensor, "dim 2"]]:
    """The centre of some vectors, and the two directions in which they differ most (PCA).

    The sign of a direction is chosen so that its largest entry is positive. Where vectors differ
    in fewer than two directions because there are so few, or so few dimensions, the rest is 0.
    """
    center = vectors.mean(dim=0)
    _, _, directions = torch.linalg.svd(vectors - center, full_matrices=False)
    two = F.pad(directions[:2], (0, 0, 0, max(0, 2 - len(directions))))
    sign = two.gather(1, two.abs().argmax(dim=1, keepdim=True)).sign()
    return center, (two * sign).T


Layout = Literal["tsne", "pca"]


def on_a_plane(
    parts: Mapping[str, Float[Tensor, "_ _"]],
    *,
    seed: int = 0,
    kind: str = "auto",
) -> tuple[Layout, dict[str, Float[Tensor, "_ 2"]]]:
    r"""Lays out vectors of one space in two dimensions, all parts together.

    By t-SNE (van der Maaten & Hinton, 2008), which keeps neighbours together and tells little of
    distances: the places :math:`y` minimise :math:`\mathrm{KL}(P \,\Vert\, Q)` of

    .. math::
        p_{j|i} \propto e^{-\lVert u_i - u_j \rVert^2 / 2\sigma_i^2}, \qquad
        q_{ij} \propto (1 + \lVert y_i - y_j \rVert^2)^{-1},

    with :math:`\sigma_i` such that a row has about 30 neighbours, or a third of the others where
    that is less. Or by PCA: :math:`y = (u - \bar u) V`, with `V` of `principal_plane`. Fewer than
    10 rows, and rows that are all the same, are always laid out by PCA.

    Args:
        parts: Rows of one common space by name, such as items and prototypes. They are compared
            by direction: rows that are not of unit length are made so.
        seed: Of t-SNE. On one machine the same seed gives the same places.
        kind: "tsne" (wants the extra `tsne`), "pca", or "auto": t-SNE where it is installed.

    Returns:
        What it came to be, "tsne" or "pca", and the places of each part's rows, on the CPU.
    """
    if kind not in ("tsne", "pca", "auto"):
        raise ConfigError(f"unknown layout `{kind}`. {suggest(kind, ('tsne', 'pca', 'auto'))}")
    package = None if kind == "pca" else _open_tsne()
    if kind == "tsne" and package is None:
        raise ConfigError(
            "wanted openTSNE to lay out vectors by t-SNE, but it is not installed. "
            "`pip install 'nobackfill[tsne]'`, or choose the layout `pca`."
        )
    unit = _one_space(parts)
    enough = len(unit) >= FEWEST_ROWS and unit.shape[1] >= 2 and bool((unit != unit[0]).any())
    if package is None or not enough:
        center, plane = principal_plane(unit)
        done: Layout = "pca"
        places = (unit - center) @ plane
    else:
        done = "tsne"
        places = _places_by_tsne(package, unit, seed)
    pieces = places.split([len(rows) for rows in parts.values()])
    return done, dict(zip(parts, pieces, strict=True))


def _one_space(parts: Mapping[str, Float[Tensor, "_ _"]]) -> Float[Tensor, "rows dim"]:
    """All rows below each other, of unit length."""
    dims = {name: rows.shape[1] for name, rows in parts.items()}
    if len(set(dims.values())) > 1:
        said = ", ".join(f"{name} {dim}" for name, dim in dims.items())
        raise DataError(
            f"wanted vectors of one space, but their dimensions differ: {said}. Lay out each space "
            f"by itself."
        )
    if not any(len(rows) for rows in parts.values()):
        raise DataError("wanted vectors to lay out, but there are none. Pass at least one row.")
    for name, rows in parts.items():
        check_finite(rows, f"`{name}`")
    return _unit(torch.cat([rows.detach().cpu() for rows in parts.values()]))


def _open_tsne() -> ModuleType | None:
    """The package, where it is installed."""
    try:
        return importlib.import_module("openTSNE")
    except ImportError:
        return None


def _places_by_tsne(
    package: ModuleType, unit: Float[Tensor, "rows dim"], seed: int
) -> Float[Tensor, "rows 2"]:
    """On one thread, as more would add in another order each time."""
    tsne = package.TSNE(
        perplexity=min(PERPLEXITY, (len(unit) - 1) / 3),
        metric="euclidean",  # of unit vectors: the order is that of cosines
        random_state=seed,
        n_jobs=1,
    )
    return torch.as_tensor(tsne.fit(unit.numpy()).__array__(), dtype=unit.dtype)
