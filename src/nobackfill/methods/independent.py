"""Independent: the new model trained as if there were no old one.

Its self-test is the ceiling that compatible models are measured against; its queries find nothing
in the old gallery.
"""

from jaxtyping import Float, Int
from torch import Tensor

from nobackfill.methods.base import ClassifyingMethod, Terms


class Independent(ClassifyingMethod):
    """Classification alone.

    Args:
        old: Not used.
        num_classes: How many classes the new model is trained on.
        dim: Of the new embedding; found at the first batch where it is not given.
    """

    def forward(
        self,
        new: Float[Tensor, "batch dim"],
        labels: Int[Tensor, " batch"],
        *,
        items: Int[Tensor, " batch"] | None = None,
    ) -> Terms:
        """Returns the term `classification`."""
        return {"classification": self.classification(new, labels)}
