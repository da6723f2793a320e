"""Independent: the new model trained as if there were no old one.

Its self-test is the ceiling that compatible models are measured against; its queries find nothing
in the old gallery.
"""

from typing import ClassVar

from nobackfill.methods.base import ClassifyingMethod, Items, Labels, New, OldVectors, Terms


class Independent(ClassifyingMethod):
    r"""Classification alone.

    .. math::
        \mathrm{CE}(W e, y)

    Relations:
        `IndependentContrastive` adds a contrast among its own prototypes.

    Args:
        old: Not used.
        num_classes: How many classes the new model is trained on.
        dim: Of the new embedding; found at the first batch where it is not given.
    """

    paper: ClassVar[str] = "a control"
    dimension: ClassVar[str] = "longer"

    def forward(
        self, new: New, labels: Labels, *, items: Items = None, old: OldVectors = None
    ) -> Terms:
        """Returns the term `classification`."""
        return {"classification": self.classification(new, labels)}
