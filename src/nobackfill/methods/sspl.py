"""SSPL and SSPL-CE: keep the similarities of each part of a vector to centroids of the old space.

Wu et al., Structure Similarity Preservation Learning for Asymmetric Image Retrieval, TMM 2024.
https://arxiv.org/abs/2403.00648

SSPL-CE adds the labels, as compared in Zhou et al., Prototype Perturbation for Relaxing Alignment
Constraints in Backward-Compatible Learning, 2025. https://arxiv.org/abs/2503.14824
"""

from typing import Any

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from nobackfill.methods.base import ClassifyingMethod, Items, Labels, Method, New, Old, Terms
from nobackfill.methods.checks import at_least_single, check_dim
from nobackfill.methods.old_space import OldSpace
from nobackfill.methods.options import passes_on
from nobackfill.ops.kmeans import centroid_log_shares, largest_split, train_codebooks


def learn_centroids(
    method: "SSPL | SSPLCE",
    *,
    parts: int | None = None,
    centroids: int = 256,
    sharpness: float = 10.0,
    iterations: int = 10,
    starts: int = 2,
    engine: str = "torch",
) -> None:
    """Gives a method the centroids of each part of the unit old vectors, found by k-means.

    Args:
        method: Method with old vectors of the items.
        parts: Number of parts, :math:`m`. By default 32, or the next smaller number that cuts the
            dimension into equal parts of at least two.
        centroids: Number of centroids of each part.
        sharpness: Scale of the cosines, :math:`s`.
        iterations: Number of k-means iterations.
        starts: Number of k-means starts; the best is kept.
        engine: K-means engine: "torch", or "faiss" if it is installed.
    """
    books = train_codebooks(
        F.normalize(at_least_single(method.embeddings), dim=-1),
        parts=largest_split(method.embeddings.shape[1], 32) if parts is None else parts,
        centroids=centroids,
        iterations=iterations,
        starts=starts,
        engine=engine,
    )
    method.register_buffer("books", books)
    method.sharpness = sharpness


def structure_loss(
    new: Float[Tensor, "batch dim"],
    old: Float[Tensor, "batch dim"],
    books: Float[Tensor, "parts centroids part_dim"],
    *,
    sharpness: float,
) -> Float[Tensor, ""]:
    """Computes the formula of `SSPL`: the mean over items and parts.

    Example:
        >>> import torch
        >>> books, vectors = torch.eye(2)[None], torch.tensor([[1.0, 0.0]])
        >>> structure_loss(vectors, vectors, books, sharpness=10.0)
        tensor(0.)
    """
    books = books.to(new.dtype)
    of_new = centroid_log_shares(new, books, sharpness=sharpness)
    of_old = centroid_log_shares(old, books, sharpness=sharpness)
    difference = F.kl_div(of_new, of_old, log_target=True, reduction="sum")
    return difference / (len(new) * len(books))


class SSPL(Method):
    r"""Keeps the similarities of each part of a vector to old centroids, without using labels.

    .. math::
        \frac{1}{m} \sum_{j=1}^{m} \mathrm{KL}\bigl(P(f_j) \,\Vert\, P(e_j)\bigr), \qquad
        P(v_j)_k = \mathrm{softmax}_k \bigl(s \cos(v_j, a_{jk})\bigr)

    A vector is cut into :math:`m` parts; :math:`a_{jk}` are the centroids of part :math:`j` among
    the unit old vectors, found once by k-means. At best the new model becomes the old one, up to
    the length of each part.

    New classes:
        New classes take part like all others, because labels are not used.

    Old view:
        The view that the authors use is not known. Old vectors are the stored ones by default.
        Centroids are computed from images without augmentation.

    Relations:
        `SSPLCE` adds the labels. `Mimic` keeps the vectors themselves.
    """

    needs = frozenset({"embeddings"})
    supervised = False
    paper = "Wu et al., TMM"
    year = 2024
    books: Float[Tensor, "parts centroids part_dim"]
    sharpness: float

    @passes_on(learn_centroids)
    def __init__(self, old: OldSpace, num_classes: int, **options: Any):
        super().__init__(old, num_classes)
        learn_centroids(self, **options)

    def forward(self, new: New, labels: Labels, *, items: Items = None, old: Old = None) -> Terms:
        """Returns the term `structure`."""
        check_dim(new, self.embeddings.shape[1])
        stored = self.old_vectors(new, items, old)
        return {"structure": structure_loss(new, stored, self.books, sharpness=self.sharpness)}


class SSPLCE(ClassifyingMethod):
    r"""Adds to the new classification loss the structure term of `SSPL`.

    .. math::
        \mathrm{CE}(W e, y) + \lambda L_{sspl}

    Old view:
        The old view is that of `SSPL`.

    Reconstruction:
        The paper does not give the weight of the structure term. The default here is 1.

    Relations:
        `SSPL` is the second term alone.
    """

    needs = frozenset({"embeddings"})
    paper = "Wu et al., TMM"
    year = 2024
    books: Float[Tensor, "parts centroids part_dim"]
    sharpness: float

    @passes_on(learn_centroids)
    def __init__(self, old: OldSpace, num_classes: int, *, weight: float = 1.0, **options: Any):
        super().__init__(old, num_classes, dim=old.dim)
        learn_centroids(self, **options)
        self.weight = weight

    def forward(self, new: New, labels: Labels, *, items: Items = None, old: Old = None) -> Terms:
        """Returns the terms `classification` and `structure`."""
        classification = self.classification(new, labels)
        stored = self.old_vectors(new, items, old)
        structure = structure_loss(new, stored, self.books, sharpness=self.sharpness)
        return {"classification": classification, "structure": self.weight * structure}
