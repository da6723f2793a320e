"""Mimic: each new embedding looks like the old one of the same item."""

from nobackfill.methods.base import Items, Labels, Method, New, Old, Terms
from nobackfill.methods.checks import check_dim
from nobackfill.methods.losses import mimic_loss


class Mimic(Method):
    r"""Distils the old vectors, item by item: no labels, no classifier.

    .. math::
        1 - \cos(e, f)

    It is the plainest way to be compatible, and a floor for the others: at best it becomes the old
    model.

    New classes:
        Take part like all others; labels are not looked at.

    Relations:
        `PrototypeMimic` adds the labels. `SSPL` mimics neighbourhoods instead of vectors.
    """

    needs = frozenset({"embeddings"})
    supervised = False

    def forward(self, new: New, labels: Labels, *, items: Items = None, old: Old = None) -> Terms:
        """Returns the term `mimicry`."""
        check_dim(new, self.embeddings.shape[1])
        return {"mimicry": mimic_loss(new, self.old_vectors(new, items, old))}
