"""Independent, contrastive: the control that has the extra supervision but no old model.

Compatible methods add a contrast among class prototypes and sometimes beat the independent model on
its own gallery. This method shows whether the contrast alone is the reason.
"""

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from nobackfill.core.config.defaults import DEFAULT_TEMPERATURE
from nobackfill.methods.base import ClassifyingMethod, Items, Labels, New, Old, Terms
from nobackfill.methods.losses import prototype_loss, same_class
from nobackfill.methods.old_space import OldSpace


class IndependentContrastive(ClassifyingMethod):
    r"""Classification, and a contrast among the running prototypes of the new model itself.

    .. math::
        \mathrm{CE}(W e, y) - \lambda \log \frac{\exp(\cos(e, q_y) / \tau)}
        {\sum_c \exp(\cos(e, q_c) / \tau)}, \qquad
        q_y \leftarrow m \, q_y + (1 - m) \, \mathrm{mean}_{i : y_i = y} \, \hat e_i

    The prototypes of a batch's classes are updated before each step. A class that has not occurred
    yet has cosine 0 with every embedding.

    Relations:
        `PrototypeAlignment` is the same with the prototypes of the old model.

    Args:
        momentum: Share of a prototype that is kept when its class is seen again.
    """

    paper = "a control of ours"
    dimension = "longer"
    running: Float[Tensor, "classes dim"] | None

    def __init__(
        self,
        old: OldSpace,
        num_classes: int,
        *,
        weight: float = 1.0,
        temperature: float = DEFAULT_TEMPERATURE,
        momentum: float = 0.9,
        dim: int | None = None,
    ):
        super().__init__(old, num_classes, dim=dim)
        self.weight, self.temperature, self.momentum = weight, temperature, momentum
        self.register_buffer("running", None if dim is None else torch.zeros(num_classes, dim))

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        """Takes the dimension from the saved prototypes if it is not known yet."""
        saved = state_dict.get(f"{prefix}running")
        if self.running is None and saved is not None:
            self.running = torch.zeros_like(saved)
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def forward(self, new: New, labels: Labels, *, items: Items = None, old: Old = None) -> Terms:
        """Returns the terms `classification` and `contrast`; updates the running prototypes."""
        classification = self.classification(new, labels)
        if self.running is None:
            self.running = new.new_zeros(self.num_classes, new.shape[1])
        if self.training:
            of_batch = batch_means(new.detach(), labels)  # the same row for each item of a class
            self.running[labels] = (
                self.momentum * self.running[labels] + (1 - self.momentum) * of_batch
            )
        contrast = prototype_loss(
            new, labels, self.running, self.running, temperature=self.temperature
        )
        return {"classification": classification, "contrast": self.weight * contrast}


def batch_means(
    vectors: Float[Tensor, "batch dim"], labels: Int[Tensor, " batch"]
) -> Float[Tensor, "batch dim"]:
    """Returns for each item the mean unit vector of its class in the batch."""
    same = same_class(labels).to(vectors.dtype)
    return same @ F.normalize(vectors, dim=-1) / same.sum(dim=-1, keepdim=True)
