"""Mimic: each new embedding looks like the old one of the same item."""

from typing import ClassVar

from nobackfill.methods.base import Items, Labels, Method, New, OldVectors, Terms
from nobackfill.methods.checks import check_dim
from nobackfill.methods.losses import mimic_loss
from nobackfill.methods.old_space import Need


class Mimic(Method):
    r"""Distils the old vectors, item by item: no labels, no classifier.

    .. math::
        1 - \cos(e, f)

    It is the plainest way to be compatible, and a floor for the others: at best it becomes the old
    model.

    New classes:
        Take part like all others; labels are not looked at.

    Old view:
        Ours; the stored vectors by default.

    Relations:
        `PrototypeMimic` adds the labels. `SSPL` mimics neighbourhoods instead of vectors.

    Args:
        old: Of which the embeddings are used.
        num_classes: Not used.
    """

    needs: ClassVar[frozenset[Need]] = frozenset({"embeddings"})
    supervised: ClassVar[bool] = False

    def forward(
        self, new: New, labels: Labels, *, items: Items = None, old: OldVectors = None
    ) -> Terms:
        """Returns the term `mimicry`."""
        check_dim(new, self.embeddings.shape[1])
        return {"mimicry": mimic_loss(new, self.old_vectors(new, items, old))}
