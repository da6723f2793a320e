"""Member contrast: mapped queries against one stored old vector of every class."""

from typing import Any

import torch

from nobackfill.core.config.defaults import DEFAULT_TEMPERATURE
from nobackfill.methods.base import Items, Labels, New, Old, Terms
from nobackfill.methods.checks import require_items
from nobackfill.methods.item_index import ItemClasses
from nobackfill.methods.losses import class_contrast
from nobackfill.methods.old_space import OldSpace
from nobackfill.methods.query_map import MappedQueries


class MemberContrast(MappedQueries):
    r"""Adds to cosine classification a contrast of mapped queries with old vectors of all classes.

    .. math::
        \mathrm{CE}(s \cos(W, e), y) - \frac{\mu}{2} \sum_{k \in \{f,\, m_y\}}
        \log \frac{\exp(\cos(B e', k) / \tau)}
        {\exp(\cos(B e', k) / \tau) + \sum_{c \ne y} \exp(\cos(B e', m_c) / \tau)},
        \qquad e' = \lambda e + (1 - \lambda)\, \mathrm{sg}(e)

    In each step, one old vector of each class, :math:`m_c`, drawn at random, represents the class.
    Over many draws, the model sees how a class is spread, which a class mean hides. The positives
    of an item are its own old vector :math:`f` and another one of its class.

    :math:`e` is stored and searched among new vectors, so it need not lie near old ones.
    :math:`B e` searches the old gallery. The map learns from the whole gradient of the contrast,
    the model from a share :math:`\lambda` of it (:math:`\mathrm{sg}` stops the gradient).

    The classifier compares cosines at the scale :math:`s = \sqrt{2} \ln C` for :math:`C` classes,
    unless `cosine = false`.

    `query` maps; `gallery` returns the embedding unchanged.
    `nobackfill.gallery.mixed_merge.merge_rankings` merges both rankings for a partly new gallery.

    Without the classes of all items (`OldSpace.labels`), the method collects them from the batches,
    for the next epoch. A class without known items has cosine 0 with every query.

    Dimensions:
        The new embedding may have any dimension: the map goes from the new dimension to the old
        one.

    Old view:
        Old vectors are the stored ones by default. Those of other items are always the stored ones.

    Relations:
        With class means in place of the old vectors and of both positives, it is
        `PrototypeAlignmentMapped`. `CrossSupCon` contrasts with the old vectors of the batch, and
        `Janus` ranks them.

    Args:
        weight: Weight of the contrast, :math:`\mu`.
        share: Share of the contrast's gradient that reaches the model, :math:`\lambda`.
    """

    needs = frozenset({"embeddings"})

    def __init__(
        self,
        old: OldSpace,
        num_classes: int,
        *,
        weight: float = 1.0,
        temperature: float = DEFAULT_TEMPERATURE,
        cosine: bool = True,
        share: float = 0.25,
        dim: int | None = None,
    ):
        super().__init__(old, num_classes, dim=dim)
        self.add_map(dim, self.embeddings.shape[1], share=share)
        self.weight, self.temperature, self.cosine = weight, temperature, cosine
        self.classes = ItemClasses(old.labels, self.embeddings, num_classes)

    def start_epoch(self, epoch: int, epochs: int, **unused: Any) -> None:
        """Builds the index of the members of each class."""
        self.classes.sort()

    def forward(self, new: New, labels: Labels, *, items: Items = None, old: Old = None) -> Terms:
        """Returns the terms `classification` and `compatibility`."""
        classification = self.classification(new, labels)
        stored = self.old_vectors(new, items, old)
        items = require_items(items)
        self.classes.learn(items, labels)
        positives = torch.stack([stored, self.embeddings[self.classes.others(items)].to(new.dtype)])
        contrast = class_contrast(
            self.compared(new),
            labels,
            positives,
            self.classes.members(self.embeddings),
            temperature=self.temperature,
        )
        return {"classification": classification, "compatibility": self.weight * contrast}
