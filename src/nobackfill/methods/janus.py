"""Janus: one model, with a linear map for queries to the old gallery."""

from typing import Any

from nobackfill.methods.base import Items, Labels, New, Old, Terms
from nobackfill.methods.item_index import ItemClasses
from nobackfill.methods.losses import same_class, smooth_average_precision
from nobackfill.methods.old_space import OldSpace
from nobackfill.methods.query_map import MappedQueries


class Janus(MappedQueries):
    r"""Trains the new model nearly unconstrained, with a map whose queries rank old vectors.

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
        The new embedding may have any dimension: the map goes from the new dimension to the old
        one.

    Old view:
        Old vectors are the stored ones by default. Those of partners are always the stored ones.

    Relations:
        With the identity in place of :math:`B`, :math:`\lambda = \mu = 1` and no partners it is
        `RBCL`. With :math:`\lambda = 0` the model is that of `Independent`.
        `PrototypeAlignmentMapped`, `NDPPMapped` and `ODPPMapped` have the same map, and other
        losses.

    Args:
        weight: Weight of the ranking, :math:`\mu`.
        share: Share of the ranking's gradient that reaches the model, :math:`\lambda`.
        partners: Number of other stored items of its class that are drawn at random for each item
            of a batch; a batch of many classes has few items of each.
    """

    needs = frozenset({"embeddings"})
    data_dependent = True

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
        self.add_map(dim, self.embeddings.shape[1], share=share)
        self.weight, self.partners = weight, partners
        self.classes = ItemClasses(old.labels, self.embeddings, num_classes)

    def start_epoch(self, epoch: int, epochs: int, **unused: Any) -> None:
        """Builds the index of partners."""
        self.classes.sort()

    def forward(self, new: New, labels: Labels, *, items: Items = None, old: Old = None) -> Terms:
        """Returns the terms `classification` and `ranking`."""
        classification = self.classification(new, labels)
        stored = self.old_vectors(new, items, old)
        precision = smooth_average_precision(
            self.compared(new),
            self.classes.with_partners(stored, items, labels, self.embeddings, self.partners),
            same_class(labels).repeat(1, 1 + self.partners),
        )
        return {"classification": classification, "ranking": self.weight * (1 - precision)}
