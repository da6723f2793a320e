"""RM: an unconstrained new model, and a small map from its queries to old ones.

Seo et al., Online Backfilling with No Regret for Large-Scale Image Retrieval, 2023.
https://arxiv.org/abs/2301.03767
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from nobackfill.core.config.defaults import DEFAULT_TEMPERATURE
from nobackfill.methods.base import ClassifyingMethod, Items, Labels, New, Old, Sides, Terms
from nobackfill.methods.checks import check_batch_size
from nobackfill.methods.losses import mimic_loss, same_class, supervised_contrast
from nobackfill.methods.old_space import OldSpace


class RM(ClassifyingMethod):
    r"""Trains the new model without constraint, and a map from new to old queries with it.

    .. math::
        \mathrm{CE}(W e, y) + \lambda \, (1 - \cos(\psi(e), f)) + \mu \, L_{con}(\psi(e))

    :math:`\psi` is Linear, BatchNorm, ReLU, Linear on the unit embedding; its gradient does not
    reach the model. :math:`L_{con}` is the supervised contrast of :math:`\psi(e_i)` with the old
    vectors of the batch and the other mapped ones, so negatives come from both systems.

    `query` maps; `gallery` returns the embedding unchanged: new queries search the old gallery
    mapped, and a new gallery unmapped. `nobackfill.gallery.mixed_merge.merge_rankings` merges both
    rankings for a partly new gallery.

    Dimensions:
        The new embedding may have any dimension: the map goes from the new dimension to the old
        one.

    Old view:
        In the paper, both models are frozen. Old vectors are the stored ones by default.

    Reconstruction:
        The layer sizes of the map and its temperature are not public; we chose them. The authors
        train the map after the model; here both are trained together. Raw vectors of two models
        cannot be compared, so the new vectors of the contrast are the mapped ones.

    Relations:
        Its new/new is that of `Independent`, because the map does not affect the model.

    Args:
        mapping_weight: Weight of the distance to the item's own old vector.
        contrast_weight: Weight of the contrast.
        hidden: Width of the map.
    """

    needs = frozenset({"embeddings"})
    paper = "Seo et al., arXiv"
    year = 2023
    at_inference = "a map on each query"
    maps_queries = True
    dimension = "any"
    moves_only: ClassVar[Mapping[str, str]] = {"mapping": "map", "contrast": "map"}

    def __init__(
        self,
        old: OldSpace,
        num_classes: int,
        *,
        mapping_weight: float = 1.0,
        contrast_weight: float = 1.0,
        temperature: float = DEFAULT_TEMPERATURE,
        hidden: int = 512,
        dim: int | None = None,
    ):
        super().__init__(old, num_classes, dim=dim)
        self.map = QueryMap(dim, hidden, self.embeddings.shape[1])
        self.mapping_weight, self.contrast_weight = mapping_weight, contrast_weight
        self.temperature = temperature

    def forward(self, new: New, labels: Labels, *, items: Items = None, old: Old = None) -> Terms:
        """Returns the terms `classification`, `mapping` and `contrast`."""
        classification = self.classification(new, labels)
        check_batch_size(new)
        mapped, stored = self.map(new.detach()), self.old_vectors(new, items, old)
        same = same_class(labels)
        itself = torch.eye(len(new), dtype=torch.bool, device=new.device)
        contrast = supervised_contrast(
            mapped,
            torch.cat([stored, mapped]),
            same.repeat(1, 2),
            temperature=self.temperature,
            left_out=torch.cat([torch.zeros_like(itself), itself], dim=1),
        )
        return {
            "classification": classification,
            "mapping": self.mapping_weight * mimic_loss(mapped, stored),
            "contrast": self.contrast_weight * contrast,
        }

    def query(self, vectors: Float[Tensor, "rows dim"]) -> Float[Tensor, "rows old_dim"]:
        """Maps new embeddings to the old space, with the running statistics of BatchNorm."""
        was_training = self.map.training
        self.map.eval()
        try:
            mapped: Tensor = self.map(vectors)
        finally:
            self.map.train(was_training)
        return mapped

    @classmethod
    def sides(cls, state: Mapping[str, Tensor], options: Mapping[str, Any]) -> Sides:
        """Returns the map for queries; stored vectors stay unchanged."""
        weights = cls.tensors_of(state, "map.")
        hidden, dim = weights["first.weight"].shape
        query = QueryMap(dim, hidden, len(weights["last.weight"]))
        query.load_state_dict(weights)
        return Sides(query=query)


class QueryMap(nn.Module):
    """Maps unit new embeddings to the old space: Linear, BatchNorm, ReLU, Linear."""

    def __init__(self, dim: int | None, hidden: int, old_dim: int):
        super().__init__()
        self.first = nn.LazyLinear(hidden) if dim is None else nn.Linear(dim, hidden)
        self.norm = nn.BatchNorm1d(hidden)
        self.last = nn.Linear(hidden, old_dim)

    def forward(self, vectors: Float[Tensor, "rows dim"]) -> Float[Tensor, "rows old_dim"]:
        """Maps embeddings of any length."""
        hidden = self.norm(self.first(F.normalize(vectors, dim=-1))).relu()
        mapped: Tensor = self.last(hidden)
        return mapped
