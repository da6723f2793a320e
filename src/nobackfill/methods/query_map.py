"""A linear map on queries to the old gallery, learned with the model."""

from collections.abc import Mapping
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from nobackfill.methods.base import ClassifyingMethod, New, Sides


class MappedQueries(ClassifyingMethod):
    r"""A method that compares :math:`B e` in place of the embedding :math:`e` with old vectors.

    .. math::
        B e', \qquad e' = \lambda e + (1 - \lambda)\, \mathrm{sg}(e)

    The map learns from the whole gradient of the loss, the model from a share :math:`\lambda` of it
    (:math:`\mathrm{sg}` stops the gradient). Stored vectors are the embeddings, unchanged.
    """

    at_inference = "a linear map on each query"
    maps_queries = True
    dimension = "any"
    back: nn.Linear
    share: float

    def add_map(self, dim: int | None, old_dim: int, *, share: float) -> None:
        """Adds the map from the new dimension, by default that of the first batch, to the old.

        The classifier is of the new dimension too.
        """
        if dim is None:
            self.classifier = nn.LazyLinear(self.num_classes, bias=False)
        elif self.classifier.in_features != dim:
            self.classifier = nn.Linear(dim, self.num_classes, bias=False)
        self.back = nn.LazyLinear(old_dim) if dim is None else nn.Linear(dim, old_dim)
        self.share = share

    def compared(self, new: New) -> Float[Tensor, "batch old_dim"]:
        """Maps embeddings; a share of the gradient reaches them."""
        mapped: Tensor = self.back(new.detach().lerp(new, self.share))
        return mapped

    def query(self, vectors: Float[Tensor, "rows dim"]) -> Float[Tensor, "rows old_dim"]:
        """Maps embeddings to the old space."""
        mapped: Tensor = self.back(vectors)
        return mapped

    @classmethod
    def sides(cls, state: Mapping[str, Tensor], options: Mapping[str, Any]) -> Sides:
        """Returns the map for queries; stored vectors stay unchanged."""
        old_dim, dim = state["back.weight"].shape
        back = nn.Linear(dim, old_dim)
        back.load_state_dict(cls.tensors_of(state, "back."))
        return Sides(query=back)
