"""Layout of vectors in two dimensions: t-SNE, or PCA where openTSNE is not installed."""

import importlib
from collections.abc import Mapping
from types import ModuleType
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

FEWEST_ROWS = 10  # fewer rows are too few for t-SNE
PERPLEXITY = 30.0  # about the number of neighbours of a row in t-SNE


def principal_plane(
    vectors: Float[Tensor, "items dim"],
) -> tuple[Float[Tensor, " dim"], Float[Tensor, "dim 2"]]:
    """Returns the mean of vectors and their first two principal directions (PCA).

    The largest entry of a direction is positive. Missing directions, of too few vectors or
    dimensions, are 0.
    """
    center = vectors.mean(dim=0)
    _, _, directions = torch.linalg.svd(vectors - center, full_matrices=False)
    both = F.pad(directions[:2], (0, 0, 0, max(0, 2 - len(directions))))
    sign = both.gather(1, both.abs().argmax(dim=1, keepdim=True)).sign()
    return center, (both * sign).T


Layout = Literal["tsne", "pca"]


def on_a_plane(
    parts: Mapping[str, Float[Tensor, "_ _"]],
) -> tuple[Layout, dict[str, Float[Tensor, "_ 2"]]]:
    r"""Lays out vectors of one space in two dimensions, all parts together.

    t-SNE (van der Maaten & Hinton, 2008) keeps neighbours together and does not preserve
    distances: the points :math:`y` minimise :math:`\mathrm{KL}(P \,\Vert\, Q)` of

    .. math::
        p_{j|i} \propto e^{-\lVert u_i - u_j \rVert^2 / 2\sigma_i^2}, \qquad
        q_{ij} \propto (1 + \lVert y_i - y_j \rVert^2)^{-1},

    with :math:`\sigma_i` such that a row has about 30 neighbours, or a third of the others if that
    is less. PCA: :math:`y = (u - \bar u) V`, with `V` of `principal_plane`. It is used if openTSNE
    is not installed, and for fewer than 10 rows and rows that are all equal.
    Parts have names, such as items and prototypes. Returns the layout and the points of each part.
    """
    together = torch.cat([rows.detach().cpu() for rows in parts.values()])
    unit = F.normalize(together.to(torch.promote_types(together.dtype, torch.float32)), dim=1)
    enough = len(unit) >= FEWEST_ROWS and unit.shape[1] >= 2 and bool((unit != unit[0]).any())
    package = _open_tsne() if enough else None
    layout: Layout = "pca" if package is None else "tsne"
    if package is None:
        center, plane = principal_plane(unit)
        points = (unit - center) @ plane
    else:
        tsne = package.TSNE(
            perplexity=min(PERPLEXITY, (len(unit) - 1) / 3),
            metric="euclidean",  # on unit vectors the same order as cosines
            random_state=0,
            n_jobs=1,  # more threads would add in another order each time
        )
        points = torch.as_tensor(tsne.fit(unit.numpy()).__array__(), dtype=unit.dtype)
    pieces = points.split([len(rows) for rows in parts.values()])
    return layout, dict(zip(parts, pieces, strict=True))


def _open_tsne() -> ModuleType | None:
    """Returns the package, if it is installed."""
    try:
        return importlib.import_module("openTSNE")
    except ImportError:
        return None
