"""Janus: one model with two faces, one for the galleries that are there, one for those to come."""

from collections.abc import Mapping
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from nobackfill.methods.base import (
    ClassifyingMethod,
    Embeddings,
    Items,
    Labels,
    New,
    Old,
    Prototypes,
    Sides,
    Terms,
)
from nobackfill.methods.item_index import ItemClasses
from nobackfill.methods.losses import same_class, smooth_average_precision
from nobackfill.methods.old_space import OldSpace


class Janus(ClassifyingMethod):
    r"""Trains the new model nearly free, and with it a linear map whose queries rank old vectors.

    .. math::
        \mathrm{CE}(W e, y) + \mu \bigl(1 - \mathrm{AP}(B e')\bigr), \qquad
        e' = \lambda e + (1 - \lambda)\, \mathrm{sg}(e)

    :math:`\mathrm{AP}` is the average precision of the query :math:`B e'` over old vectors, made
    differentiable (`smooth_average_precision`): those of the batch and, for each of its items, of
    a partner: another item of its class, drawn by chance from all that are stored. Without partners
    a batch of many classes would hold hardly two items of any, and ranking would ask to imitate
    what the old model made of the item itself, its confusions among it. The gradient is gentler
    than the count: it goes on pulling until the class is ahead by some tenths of a cosine.

    The face that looks forward, :math:`e`, is stored and searched among its own kind: it need not
    lie where old vectors lie. The face that looks back, :math:`B e`, asks the old gallery. Both
    come from one pass through the model. The map learns the ranking whole, the model a share
    :math:`\lambda` of it (:math:`\mathrm{sg}` stops the gradient): where `RM` maps what a model
    happens to know, here the model keeps what old vectors tell of a class.

    `query` maps; `gallery` leaves the embedding as it is. While a gallery is part old, part new,
    `nobackfill.gallery.mixed_merge.merge_rankings` merges the two rankings.

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

    def start_epoch(
        self, epoch: int, epochs: int, *, new_prototypes: Prototypes, new_embeddings: Embeddings
    ) -> None:
        """Looks up who can be whose partner."""
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
        """The face that looks back."""
        back: Tensor = self.back(vectors)
        return back

    @classmethod
    def sides(cls, state: Mapping[str, Tensor], options: Mapping[str, Any]) -> Sides:
        """The map asks the old gallery; what is stored stays as it is."""
        old_dim, dim = state["back.weight"].shape
        back = nn.Linear(dim, old_dim)
        back.load_state_dict({name: state[f"back.{name}"] for name in ("weight", "bias")})
        return Sides(query=back)
