"""AdvBCT: new embeddings inside the old region of their class, indistinguishable from old vectors.

Pan et al., Boundary-Aware Backward-Compatible Representation via Adversarial Learning in Image
Retrieval, CVPR 2023. https://arxiv.org/abs/2305.02610
"""

import math
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from nobackfill.methods.base import ClassifyingMethod, Items, Labels, New, Old, Terms
from nobackfill.methods.checks import at_least_single, check_batch_size
from nobackfill.methods.item_index import ItemClasses
from nobackfill.methods.old_space import OldSpace


class AdvBCT(ClassifyingMethod):
    r"""Adds to the new classification loss a boundary around each old class, and an adversary.

    .. math::
        \mathrm{CE}(W e, y) + \lambda \max(0, \lVert \hat e - p_y \rVert - R_y) +
        \mu \, \frac{E - t + 1}{E} \bigl(\mathrm{NLL}(D(e), \text{new}) + \mathrm{NLL}(D(f),
        \text{old})\bigr)

    :math:`p_c` is the mean of the unit old vectors of a class and :math:`r_c` the largest distance
    from it, outliers left out. The boundary :math:`R_c = r_c + (T - r_c) \sigma(w_c)` lies between
    :math:`r_c` and :math:`T`, with a learned :math:`w_c`. The mean is over the items beyond their
    boundary. The discriminator :math:`D` learns to distinguish new embeddings from old. Its
    reversed gradient, stronger from batch to batch, teaches the new model to deceive it.

    New classes:
        New classes have no boundary and only take part in the term of the adversary. Classes with a
        single item have no boundary either.

    Old view:
        The authors run the old model on each batch, so old and new vectors come from the same view
        (`old_view = "same"`). Their code augments nothing, so both views are equal there. Centres
        and radii are computed from images without augmentation.

    Differences:
        Regions are computed from items of the old classes in the *new* training set. The authors
        use the old training set, which gives the same regions if an upgrade only adds classes.
        Without `OldSpace.labels`, the method collects the classes of the items from the batches, so
        boundaries are complete from the second epoch on.

    Relations:
        `PrototypeAlignment` pulls embeddings to a point, this method to a region.

    Args:
        weight: Weight of the boundary.
        adversarial_weight: Weight of the adversary.
        target_radius: Common radius :math:`T`.
        hidden: Width of the discriminator.
    """

    needs = frozenset({"embeddings"})
    data_dependent = True
    paper = "Pan et al., CVPR"
    year = 2023
    old_classes_only = True
    centre: Float[Tensor, "classes dim"]
    radius: Float[Tensor, " classes"]
    bounded: Bool[Tensor, " classes"]

    def __init__(
        self,
        old: OldSpace,
        num_classes: int,
        *,
        weight: float = 1.0,
        adversarial_weight: float = 1.0,
        target_radius: float = 1.0,
        hidden: int = 100,
    ):
        super().__init__(old, num_classes, dim=old.dim)
        dim = self.embeddings.shape[1]
        self.known_classes = num_classes if old.known_classes is None else old.known_classes
        self.weight, self.adversarial_weight = weight, adversarial_weight
        self.target_radius = target_radius
        self.classes = ItemClasses(old.labels, self.embeddings, num_classes)
        self.register_buffer("centre", torch.zeros(num_classes, dim))
        self.register_buffer("radius", torch.zeros(num_classes))
        self.register_buffer("bounded", torch.zeros(num_classes, dtype=torch.bool))
        self.elastic = nn.Parameter(torch.empty(num_classes).uniform_(-1, 1))
        self.discriminator = nn.Sequential(
            nn.Linear(dim, hidden), nn.BatchNorm1d(hidden), nn.ReLU(), nn.Linear(hidden, 2)
        )
        self.epoch, self.epochs, self.seen = 0, 1, 0
        self.measured = False
        if self.classes.complete:
            self.measure()

    def measure(self) -> None:
        """Computes the region of each class from the items whose class is known."""
        known = self.classes.known >= 0
        centre, radius, count = class_regions(
            self.embeddings[known], self.classes.known[known], self.num_classes
        )
        self.centre, self.radius = centre, radius
        is_old = torch.arange(self.num_classes, device=count.device) < self.known_classes
        self.bounded = is_old & (count > 1)
        self.measured = True

    def start_epoch(self, epoch: int, epochs: int, **unused: Any) -> None:
        """Stores the progress of the training."""
        self.epoch, self.epochs, self.seen = epoch, epochs, 0
        self.measured = self.classes.complete

    @property
    def reversal(self) -> float:
        r"""Strength of the reversed gradient, :math:`2 / (1 + e^{-10 p}) - 1`, with progress p."""
        progress = (self.epoch + min(1.0, self.seen / len(self.embeddings))) / self.epochs
        return 2 / (1 + math.exp(-10 * progress)) - 1

    def forward(self, new: New, labels: Labels, *, items: Items = None, old: Old = None) -> Terms:
        """Returns the terms `classification`, `boundary` and `adversarial`."""
        classification = self.classification(new, labels)
        check_batch_size(new)
        stored = self.old_vectors(new, items, old)
        self.classes.learn(items, labels)
        if not self.measured:
            self.measure()
        # Boundary: the mean distance of the items beyond the boundary of their class.
        radius = self.radius.to(new.dtype)
        boundary = boundary_loss(
            new,
            self.centre[labels].to(new.dtype),
            elastic_radius(radius, self.elastic, self.target_radius)[labels],
            self.bounded[labels],
        )

        # Adversary: a discriminator of new and old, whose reversed gradient reaches the new model.
        reversed_new = ReverseGradient.apply(new, self.reversal)  # type: ignore[no-untyped-call]
        of_new = self.discriminator(reversed_new)
        of_old = self.discriminator(stored)
        zeros = torch.zeros_like(labels)  # class 0 is new, class 1 old
        adversarial = F.cross_entropy(of_new, zeros) + F.cross_entropy(of_old, zeros + 1)
        fading = (self.epochs - self.epoch + 1) / self.epochs
        if self.training:
            self.seen += len(new)
        return {
            "classification": classification,
            "boundary": self.weight * boundary,
            "adversarial": self.adversarial_weight * fading * adversarial,
        }


class ReverseGradient(torch.autograd.Function):
    """The identity with a reversed and scaled gradient."""

    @staticmethod
    def forward(ctx: Any, vectors: Tensor, strength: float) -> Tensor:
        """Returns the vectors unchanged."""
        ctx.strength = strength
        return vectors.view_as(vectors)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        """Returns the reversed gradient."""
        return -ctx.strength * gradients[0], None


def class_regions(
    vectors: Float[Tensor, "items dim"], labels: Int[Tensor, " items"], num_classes: int
) -> tuple[Float[Tensor, "classes dim"], Float[Tensor, " classes"], Int[Tensor, " classes"]]:
    r"""Centre, radius and number of items of each class, among unit vectors.

    .. math::
        p_c = \frac{1}{n_c} \sum_{i : y_i = c} \hat f_i, \qquad
        d_i = \lVert \hat f_i - p_c \rVert, \qquad
        r_c = \max \{d_i : d_i \le q_3 + 1.5 (q_3 - q_1)\}

    The quartiles are the sorted distances at :math:`\lfloor n/4 \rfloor` and :math:`\lfloor 3n/4
    \rfloor`, from 0; classes of fewer than four items keep all.

    Example:
        >>> line = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
        >>> class_regions(line, torch.tensor([0, 0]), 1)
        (tensor([[0.5000, 0.5000]]), tensor([0.7071]), tensor([2]))
    """
    unit = F.normalize(at_least_single(vectors), dim=-1)
    count = labels.bincount(minlength=num_classes)
    centre = unit.new_zeros(num_classes, unit.shape[1]).index_add(0, labels, unit)
    centre = centre / count.clamp(min=1)[:, None]

    # Sort the items by class, and by distance from the centre within each class.
    distance = (unit - centre[labels]).norm(dim=-1)
    order = distance.argsort()
    order = order[labels[order].argsort(stable=True)]
    ordered, of_class = distance[order], labels[order]

    # The largest distance that is no outlier is the radius.
    last = max(len(ordered) - 1, 0)
    start = count.cumsum(0) - count
    low = ordered[(start + count // 4).clamp(max=last)]
    high = ordered[(start + 3 * count // 4).clamp(max=last)]
    limit = torch.where(count < 4, torch.inf, high + 1.5 * (high - low))
    kept = ordered.where(ordered <= limit[of_class], 0)
    return centre, kept.new_zeros(num_classes).scatter_reduce(0, of_class, kept, "amax"), count


def elastic_radius(
    radius: Float[Tensor, " classes"], elastic: Float[Tensor, " classes"], target: float
) -> Float[Tensor, " classes"]:
    """Moves each radius towards a common one by a learned share, see `AdvBCT`."""
    return radius + (target - radius) * elastic.sigmoid()


def boundary_loss(
    new: Float[Tensor, "batch dim"],
    centre: Float[Tensor, "batch dim"],
    radius: Float[Tensor, " batch"],
    bounded: Bool[Tensor, " batch"],
) -> Float[Tensor, ""]:
    """Returns the mean distance of unit embeddings from their boundaries, over those beyond."""
    distance = (F.normalize(new, dim=-1) - centre).norm(dim=-1)
    beyond = ((distance - radius) * bounded).clamp(min=0)
    loss: Tensor = beyond.sum() / (beyond > 0).sum().clamp(min=1)
    return loss
