"""Janus: one model with two faces, one for the galleries that are there, one for those to come."""

from collections.abc import Mapping
from typing import Any, ClassVar

from jaxtyping import Float
from torch import Tensor, nn

from nobackfill.losses import same_class, supervised_contrast
from nobackfill.methods.base import ClassifyingMethod, Items, Labels, New, OldVectors, Sides, Terms
from nobackfill.oldspace import Need, OldSpace


class Janus(ClassifyingMethod):
    r"""Trains the new model nearly free, and with it a linear map that asks the old gallery.

    .. math::
        \mathrm{CE}(W e, y) + L_{con}(B e'), \qquad
        e' = \lambda e + (1 - \lambda)\, \mathrm{sg}(e), \qquad
        L_{con}(q_i) = -\frac{1}{|P_i|} \sum_{p \in P_i}
        \log \frac{\exp(\cos(q_i, f_p) / \tau)}{\sum_j \exp(\cos(q_i, f_j) / \tau)}, \qquad
        P_i = \{p : y_p = y_i\}

    :math:`f` are the old vectors of the batch. The face that looks forward, :math:`e`, is stored
    and searched among its own kind: it need not lie where the old vectors lie. The face that looks
    back, :math:`B e`, asks the old gallery, and finds there what is of its class, as `CrossSupCon`
    does. Both come from one pass through the model. The map learns the contrast whole, the model a
    share :math:`\lambda` of it (:math:`\mathrm{sg}` stops the gradient): where `RM` maps what a
    model happens to know, here the model keeps what old vectors tell of an item, and yet new/new
    stays nearly free.

    `query` maps; `gallery` leaves the embedding as it is. While a gallery is part old, part new,
    `merge_rankings` of `nobackfill.merge` makes one ranking of what is found in the two.

    New classes:
        Take part like all others.

    Dimensions:
        Free: the map goes from the new dimension to the old.

    Old view:
        Ours; the stored vectors by default.

    Relations:
        With the identity in place of :math:`B` and :math:`\lambda = 1` it is `CrossSupCon`. With
        :math:`\lambda = 0` the model is that of `Independent`. `CompatibleHead` fits the same map,
        wider, to a model that is already there.

    Args:
        old: Of which the embeddings are used.
        num_classes: How many classes the new model is trained on.
        share: :math:`\lambda`, how much of the contrast the model learns.
        temperature: :math:`\tau`, of the contrast.
        dim: Of the new embedding; found at the first batch where it is not given.
    """

    needs: ClassVar[frozenset[Need]] = frozenset({"embeddings"})
    at_inference: ClassVar[str] = "a linear map on each query"
    maps_queries: ClassVar[bool] = True
    dimension: ClassVar[str] = "any"

    def __init__(
        self,
        old: OldSpace,
        num_classes: int,
        *,
        share: float = 0.4,
        temperature: float = 0.07,
        dim: int | None = None,
    ):
        super().__init__(old, num_classes, dim=dim)
        old_dim = self.embeddings.shape[1]
        self.back = nn.LazyLinear(old_dim) if dim is None else nn.Linear(dim, old_dim)
        self.share, self.temperature = share, temperature

    def forward(
        self, new: New, labels: Labels, *, items: Items = None, old: OldVectors = None
    ) -> Terms:
        """Returns the terms `classification` and `compatibility`."""
        classification = self.classification(new, labels)
        shared = new.detach().lerp(new, self.share)
        contrast = supervised_contrast(
            self.back(shared),
            self.old_vectors(new, items, old),
            same_class(labels),
            temperature=self.temperature,
        )
        return {"classification": classification, "compatibility": contrast}

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
