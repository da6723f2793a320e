"""Mimic: each new embedding imitates the old one of the same item."""

from nobackfill.methods.base import Items, Labels, Method, New, Old, Terms
from nobackfill.methods.checks import check_dim
from nobackfill.methods.losses import mimic_loss


class Mimic(Method):
    r"""Distils the old vectors item by item, without labels or classifier.

    .. math::
        1 - \cos(e, f)

    This is the simplest compatible method, and a lower bound for the others: at best, the new model
    becomes the old one.

    New classes:
        New classes take part like all others, because labels are not used.

    Relations:
        `PrototypeMimic` adds the labels. `SSPL` mimics neighbourhoods instead of vectors.
    """

    needs = frozenset({"embeddings"})
    supervised = False

    def forward(self, new: New, labels: Labels, *, items: Items = None, old: Old = None) -> Terms:
        """Returns the term `mimicry`."""
        check_dim(new, self.embeddings.shape[1])
        return {"mimicry": mimic_loss(new, self.old_vectors(new, items, old))}
