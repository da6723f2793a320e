"""Janus: one model with two faces, one for the galleries that are there, one for those to come."""

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from nobackfill.given import check_given
from nobackfill.itemclasses import ItemClasses
from nobackfill.losses import same_class, smooth_average_precision, supervised_contrast
from nobackfill.methods.base import (
    ClassifyingMethod,
    Embeddings,
    Items,
    Labels,
    New,
    OldVectors,
    Prototypes,
    Sides,
    Terms,
)
from nobackfill.oldspace import Need, OldSpace


class Janus(ClassifyingMethod):
    r"""Trains the new model nearly free, and with it a linear map that asks the old gallery.

    .. math::
        \mathrm{CE}(W e, y) - \frac{1}{|P_i|} \sum_{p \in P_i}
        \log \frac{\exp(\cos(B e_i', f_p) / \tau)}{\sum_j \exp(\cos(B e_i', f_j) / \tau)},
        \qquad e' = \lambda e + (1 - \lambda)\, \mathrm{sg}(e)

    :math:`f_j` are the old vectors of the batch and of one partner for each of its items: another
    item of the same class, drawn by chance from all that are stored. :math:`P_i` are those of the
    class of :math:`i`. So the map learns what a query is for, to find *other* items of its class;
    without partners a batch of many classes would hold hardly any, and the contrast would ask to
    imitate what the old model made of the item itself, its confusions among it.

    The face that looks forward, :math:`e`, is stored and searched among its own kind: it need not
    lie where old vectors lie. The face that looks back, :math:`B e`, asks the old gallery. Both
    come from one pass through the model. The map learns the contrast whole, the model a share
    :math:`\lambda` of it (:math:`\mathrm{sg}` stops the gradient): where `RM` maps what a model
    happens to know, here the model keeps what old vectors tell of a class.

    `query` maps; `gallery` leaves the embedding as it is. While a gallery is part old, part new,
    `merge_rankings` of `nobackfill.merge` makes one ranking of what is found in the two.

    New classes:
        Take part like all others.

    Dimensions:
        Free: the map goes from the new dimension to the old.

    Old view:
        Ours; the stored vectors by default. Those of partners are always the stored ones.

    Relations:
        With the identity in place of :math:`B`, :math:`\lambda = 1` and no partners it is
        `CrossSupCon`. With :math:`\lambda = 0` the model is that of `Independent`.
        `CompatibleHead` fits by the same contrast a wider map for a model that is already there.

    Args:
        old: Of which the embeddings are used, and the classes of their items where they are known;
            else those are learned from the batches.
        num_classes: How many classes the new model is trained on.
        share: :math:`\lambda`, how much of the contrast the model learns.
        temperature: :math:`\tau`, of the contrast.
        partners: How many for each item of a batch.
        map: Whether there is a map; without one the embedding itself asks, as that of a head does.
        dim: Of the new embedding; found at the first batch where it is not given.
    """

    needs: ClassVar[frozenset[Need]] = frozenset({"embeddings"})
    at_inference: ClassVar[str] = "a linear map on each query"
    maps_queries: ClassVar[bool] = True
    as_head: ClassVar[Mapping[str, Any] | None] = {
        "map": False,
        "share": 1.0,
        "temperature": 0.07,
        "ranking_weight": 0.0,
        "contrast_weight": 1.0,
    }
    dimension: ClassVar[str] = "any"

    def __init__(
        self,
        old: OldSpace,
        num_classes: int,
        *,
        share: float = 0.5,
        ranking_weight: float = 2.0,
        contrast_weight: float = 0.5,
        temperature: float = 0.07,
        partners: int = 1,
        map: bool = True,
        dim: int | None = None,
    ):
        super().__init__(old, num_classes, dim=dim)
        old_dim = self.embeddings.shape[1]
        self.back: nn.Module = nn.Identity()
        if map:
            self.back = nn.LazyLinear(old_dim) if dim is None else nn.Linear(dim, old_dim)
        self.share, self.temperature, self.partners = share, temperature, partners
        self.ranking_weight, self.contrast_weight = ranking_weight, contrast_weight
        self.classes = ItemClasses(old.labels, self.embeddings, num_classes)

    def start_epoch(
        self, epoch: int, epochs: int, *, new_prototypes: Prototypes, new_embeddings: Embeddings
    ) -> None:
        """Looks up who can be whose partner."""
        self.classes.sort()

    def forward(
        self, new: New, labels: Labels, *, items: Items = None, old: OldVectors = None
    ) -> Terms:
        """Returns the terms `classification` and `compatibility`."""
        classification = self.classification(new, labels)
        stored, items = self.old_vectors(new, items, old), check_given(items)
        self.classes.see(items, labels)
        partners = torch.cat(
            [items[:0], *(self.classes.others(items) for _ in range(self.partners))]
        )
        query = self.back(new.detach().lerp(new, self.share))
        keys = torch.cat([stored, self.embeddings[partners].to(stored.dtype)])
        positive = same_class(labels).repeat(1, 1 + self.partners)
        terms = {"classification": classification}
        if self.ranking_weight:
            ranking = 1 - smooth_average_precision(query, keys, positive)
            terms["ranking"] = self.ranking_weight * ranking
        if self.contrast_weight:
            contrast = supervised_contrast(query, keys, positive, temperature=self.temperature)
            terms["contrast"] = self.contrast_weight * contrast
        return terms

    def query(self, vectors: Float[Tensor, "rows dim"]) -> Float[Tensor, "rows old_dim"]:
        """The face that looks back."""
        back: Tensor = self.back(vectors)
        return back

    @classmethod
    def sides(cls, state: Mapping[str, Tensor], options: Mapping[str, Any]) -> Sides:
        """The map asks the old gallery; what is stored stays as it is."""
        if not options["map"]:
            return Sides()
        old_dim, dim = state["back.weight"].shape
        back = nn.Linear(dim, old_dim)
        back.load_state_dict({name: state[f"back.{name}"] for name in ("weight", "bias")})
        return Sides(query=back)
