"""SSPL-CE: the structure of the old space, and the labels.

Zhou et al., Prototype Perturbation for Relaxing Alignment Constraints in Backward-Compatible
Learning, 2025, compare it beside SSPL (Wu et al., TMM 2024). https://arxiv.org/abs/2503.14824
"""

from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from nobackfill.methods.base import ClassifyingMethod, Items, Labels, New, OldVectors, Terms
from nobackfill.methods.old_space import Need, OldSpace
from nobackfill.methods.sspl import landmarks, structure_loss


class SSPLCE(ClassifyingMethod):
    r"""Adds to the new classification loss the structure term of `SSPL`.

    .. math::
        \mathrm{CE}(W e, y) + \lambda L_{sspl}

    New classes:
        Take part like all others.

    Old view:
        As for `SSPL`.

    Reconstruction:
        The paper does not give the weight of the structure; it is 1 here.

    Relations:
        `SSPL` is the second term alone.

    Args:
        old: Of which the embeddings are used.
        num_classes: How many classes the new model is trained on.
        weight: Share of the structure.
        parts: As for `SSPL`.
        centroids: Of each part.
        sharpness: Of the similarities.
        iterations: Of k-means.
        starts: Of k-means; the best is kept.
        engine: Of k-means: "torch", or "faiss" where that is installed.
    """

    needs: ClassVar[frozenset[Need]] = frozenset({"embeddings"})
    paper: ClassVar[str] = "Wu et al., TMM"
    year: ClassVar[int | None] = 2024
    books: Float[Tensor, "parts centroids part_dim"]

    def __init__(
        self,
        old: OldSpace,
        num_classes: int,
        *,
        weight: float = 1.0,
        parts: int | None = None,
        centroids: int = 256,
        sharpness: float = 10.0,
        iterations: int = 10,
        starts: int = 2,
        engine: str = "torch",
    ):
        super().__init__(old, num_classes, dim=old.dim)
        books = landmarks(
            self.embeddings,
            parts=parts,
            centroids=centroids,
            iterations=iterations,
            starts=starts,
            engine=engine,
        )
        self.register_buffer("books", books)
        self.weight, self.sharpness = weight, sharpness

    def forward(
        self, new: New, labels: Labels, *, items: Items = None, old: OldVectors = None
    ) -> Terms:
        """Returns the terms `classification` and `structure`."""
        classification = self.classification(new, labels)
        stored = self.old_vectors(new, items, old)
        structure = structure_loss(new, stored, self.books, sharpness=self.sharpness)
        return {"classification": classification, "structure": self.weight * structure}
