"""Janus: one model, with a linear map for queries to the old gallery."""

from collections.abc import Mapping
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from nobackfill.methods.base import ClassifyingMethod, Items, Labels, New, Old, Sides, Terms
from nobackfill.methods.item_index import ItemClasses
from nobackfill.methods.losses import same_class, smooth_average_precision
from nobackfill.methods.old_space import OldSpace


class Janus(ClassifyingMethod):
    r"""Trains the new model nearly unconstrained, and with it a map whose queries rank old vectors.

    .. math::
        \mathrm{CE}(W e, y) + \mu \bigl(1 - \mathrm{AP}(B e')\bigr), \qquad
        e' = \lambda e + (1 - \lambda)\, \mathrm{sg}(e)

    :math:`\mathrm{AP}` is the average precision of the query :math:`B e'` over old vectors, made
    differentiable (`smooth_average_precision`): those of the batch and, for each of its items, of
    partners: other stored items of its class, drawn at random. Without partners, a batch of many
    classes contains hardly two items of any, and the model would have to imitate the old vector of
    the item itself, with its confusions. The gradient is gentler than the count: it continues to
    pull until the class is ahead by some tenths of a cosine.

    :math:`e` is stored and searched among new vectors, so it need not lie near old ones.
    :math:`B e` searches the old gallery. Both come from one pass through the model. The map learns
    from the whole gradient of the ranking, the model from a share :math:`\lambda` of it
    (:math:`\mathrm{sg}` stops the gradient). In `RM` the map does not affect the model; here the
    model keeps what old vectors contain of a class.

    `query` maps; `gallery` returns the embedding unchanged.
    `nobackfill.gallery.mixed_merge.merge_rankings` merges both rankings for a partly new gallery.

    Dimensions:
        Free: the map goes from the new dimension to the old.

    Old view:
        Ours; the stored vectors by default. Those of partners are always the stored ones.

    Relations:
        With the identity in place of :math:`B`, :math:`\lambda = \mu = 1` and no partners it is
        `RBCL`. With :math:`\lambda = 0` the model is that of `Independent`.

    Args:
        weight: Weight of the ranking, :math:`\mu`.
        share: Share of the ranking's gradient that reaches the model, :math:`\lambda`.
        partners: Number of other stored items of its class that are drawn at random for each item
            of a batch; a batch of many classes has few items of each.
    """

    needs = frozenset({"embeddings"})
    data_dependent = True
    at_inference = "a linear map on each query"
    maps_queries = True
    dimension = "any"

    def __init__(
        self,
        old: OldSpace,
        num_classes: int,
        *,
        weight: float = 2.0,
        share: float = 0.5,
        partners: int = 1,
        dim: int | None = None,
    ):
        super().__init__(old, num_classes, dim=dim)
        old_dim = self.embeddings.shape[1]
        self.back = nn.LazyLinear(old_dim) if dim is None else nn.Linear(dim, old_dim)
        self.weight, self.share, self.partners = weight, share, partners
        self.classes = ItemClasses(old.labels, self.embeddings, num_classes)

    def start_epoch(self, epoch: int, epochs: int, **unused: Any) -> None:
        """Builds the index of partners."""
        self.classes.sort()

    def forward(self, new: New, labels: Labels, *, items: Items = None, old: Old = None) -> Terms:
        """Returns the terms `classification` and `ranking`."""
        classification = self.classification(new, labels)
        stored = self.old_vectors(new, items, old)
        precision = smooth_average_precision(
            self.back(new.detach().lerp(new, self.share)),
            self.classes.with_partners(stored, items, labels, self.embeddings, self.partners),
            same_class(labels).repeat(1, 1 + self.partners),
        )
        return {"classification": classification, "ranking": self.weight * (1 - precision)}

    def query(self, vectors: Float[Tensor, "rows dim"]) -> Float[Tensor, "rows old_dim"]:
        """Maps embeddings to the old space."""
        back: Tensor = self.back(vectors)
        return back

    @classmethod
    def sides(cls, state: Mapping[str, Tensor], options: Mapping[str, Any]) -> Sides:
        """Returns the map for queries; stored vectors stay unchanged."""
        old_dim, dim = state["back.weight"].shape
        back = nn.Linear(dim, old_dim)
        back.load_state_dict(cls.tensors_of(state, "back."))
        return Sides(query=back)
