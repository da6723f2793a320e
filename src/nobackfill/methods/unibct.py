"""UniBCT as the paper compares it: a margin around the old prototypes of the old classes.

Zhang et al., Towards Universal Backward-Compatible Representation Learning, IJCAI 2022.
https://arxiv.org/abs/2203.01583
"""

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from nobackfill.methods.base import ClassifyingMethod, Items, Labels, New, Old, Terms
from nobackfill.methods.checks import at_least_single, check_prototypes
from nobackfill.methods.losses import known_class_loss
from nobackfill.methods.old_space import OldSpace


class UniBCT(ClassifyingMethod):
    r"""Adds to the new classification loss a margin contrast among the old classes' prototypes.

    .. math::
        \mathrm{CE}(W e, y) - \lambda \log
        \frac{\exp(s \cos(\theta_y + m))}{\exp(s \cos(\theta_y + m)) + \sum_{c \ne y} \exp(s \cos
        \theta_c)}, \qquad \cos \theta_c = \cos(e, p_c), \; c < C_{old}

    New classes:
        New classes take no part in the second term, not even as negatives.

    Old view:
        Prototypes are computed once, from images without augmentation.

    Differences:
        This is UniBCT as in the paper's tables, without structural refinement, which `UniBCTSPR`
        has. Prototypes are computed from the *new* training set. UniBCT's authors use the old one,
        which gives the same prototypes if an upgrade only adds classes.
        Beyond an angle of :math:`\pi - m`, :math:`\cos(\theta + m)` would rise again and push in
        the wrong direction; :math:`\cos \theta - m \sin m` replaces it.

    Relations:
        `PrototypeAlignment` has no margin, and uses the prototypes of all classes.

    Args:
        scale: Scale of the cosines.
        margin: Margin added to the angle to the own prototype.
    """

    needs = frozenset({"prototypes"})
    paper = "Zhang et al., IJCAI"
    year = 2022
    old_classes_only = True
    old: Float[Tensor, "old_classes dim"]

    def __init__(
        self,
        old: OldSpace,
        num_classes: int,
        *,
        weight: float = 1.0,
        scale: float = 30.0,
        margin: float = 0.3,
    ):
        super().__init__(old, num_classes, dim=old.dim)
        prototypes = at_least_single(old.get("prototypes"))[: old.known_classes]
        check_prototypes(prototypes)
        self.register_buffer("old", prototypes)
        self.weight, self.scale, self.margin = weight, scale, margin

    def forward(self, new: New, labels: Labels, *, items: Items = None, old: Old = None) -> Terms:
        """Returns the terms `classification` and `compatibility`."""
        classification = self.classification(new, labels)
        logits = margin_logits(new, labels, self.old, scale=self.scale, margin=self.margin)
        return {
            "classification": classification,
            "compatibility": self.weight * known_class_loss(logits, labels),
        }


def margin_logits(
    new: Float[Tensor, "batch dim"],
    labels: Int[Tensor, " batch"],
    prototypes: Float[Tensor, "classes dim"],
    *,
    scale: float,
    margin: float,
) -> Float[Tensor, "batch classes"]:
    r"""Scaled cosines to each prototype, with a margin on the angle to the own one.

    .. math::
        z_c = s \cos \theta_c \; (c \ne y), \qquad z_y = s \cos(\theta_y + m)

    Logits of an item whose class has no prototype have no meaning.

    Example:
        >>> new, labels = torch.tensor([[0.6, 0.8]]), torch.tensor([0])
        >>> margin_logits(new, labels, torch.eye(2), scale=2.0, margin=math.pi / 2)
        tensor([[-1.6000,  1.6000]])
    """
    cosine = F.normalize(new, dim=-1) @ F.normalize(prototypes.to(new.dtype), dim=-1).T
    own_class = labels.clamp(max=len(prototypes) - 1)[:, None]
    own = cosine.gather(1, own_class)
    smallest = torch.finfo(own.dtype).eps  # sqrt(0) has no gradient
    sine = (1 - own.square()).clamp(min=smallest).sqrt()
    turned = own * math.cos(margin) - sine * math.sin(margin)
    turned = torch.where(own > math.cos(math.pi - margin), turned, own - margin * math.sin(margin))
    return scale * cosine.scatter(1, own_class, turned)
