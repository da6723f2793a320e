"""Independent: the new model trained without the old one.

Its score on its own gallery is the ceiling for compatible models. Its queries cannot search the old
gallery.
"""

from nobackfill.methods.base import ClassifyingMethod, Items, Labels, New, Old, Terms


class Independent(ClassifyingMethod):
    r"""Classification alone.

    .. math::
        \mathrm{CE}(W e, y)

    Relations:
        `IndependentContrastive` adds a contrast among its own prototypes.
    """

    paper = "a control"
    dimension = "longer"

    def forward(self, new: New, labels: Labels, *, items: Items = None, old: Old = None) -> Terms:
        """Returns the term `classification`."""
        return {"classification": self.classification(new, labels)}
