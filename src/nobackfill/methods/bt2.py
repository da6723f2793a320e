"""BT2: an orthogonal change of basis puts both models into one longer vector.

Zhou et al., BT^2: Backward-compatible Training with Basis Transformation, ICCV 2023.
https://arxiv.org/abs/2211.03989
"""

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.utils.parametrizations import orthogonal

from nobackfill.errors import OldSpaceError, SpaceMismatch
from nobackfill.methods.base import ClassifyingMethod, Items, Labels, New, Old, Sides, Terms
from nobackfill.methods.checks import check_class_prototypes, check_items, require_items
from nobackfill.methods.losses import mimic_loss
from nobackfill.methods.old_space import OldSpace


class BT2(ClassifyingMethod):
    r"""Rotates an independent model's vector and an old-like part into one longer vector.

    .. math::
        v = \mathrm{unit}(h_{1..D_{new}}), \quad u = \mathrm{unit}(W_3 \mathrm{relu}(h) + b) \in
        R^a, \quad z = [u; R_p (c \, v)], \quad \text{output} = [R_o z_{1..D_{old}};
        z_{D_{old}+1..}]

    .. math::
        \mathrm{CE}(W v, y) + \lambda_2 \, \mathrm{CE}(\hat o P^\top, y) + \lambda_3 (1 - \cos(o,
        f)) + \lambda_1 (1 - \cos(v, \phi^*))

    :math:`R_p, R_o` are learned orthogonal matrices, :math:`o` the first :math:`D_{old}` dimensions
    of the output, :math:`P` the old prototypes of all classes and :math:`\phi^*` the item's vector
    under an independently trained new model. The output has :math:`D_{new} + a` dimensions and
    always the length :math:`\sqrt{1 + c^2}`: new/new compares all of it, new/old the first
    :math:`D_{old}`.

    Dimensions:
        Free: the model's embedding :math:`h` may have any length from :math:`D_{new}` on, best
        :math:`D_{new} + D_{old}`.

    Old view:
        The authors stored old and independent vectors once, under one random augmentation. Here
        they are computed without augmentation, as for a test.

    Relations:
        Training costs twice as much, because the independent model must be trained first.

    Args:
        independent_weight: Weight of the independent vectors, :math:`\lambda_1`.
        prototype_weight: Weight of the old prototypes, :math:`\lambda_2`.
        mimic_weight: Weight of the old vectors, :math:`\lambda_3`.
        extra_dims: Number of dimensions beyond those of the independent model, :math:`a`.
        scale: Length of the independent part, :math:`c`; the old-like part has length 1.
    """

    needs = frozenset({"prototypes", "embeddings", "independent"})
    paper = "Zhou et al., ICCV"
    year = 2023
    at_inference = "32 dimensions more, rotations"
    dimension = "any"
    old: Float[Tensor, "classes old_dim"]
    independent: Float[Tensor, "items new_dim"]

    def __init__(
        self,
        old: OldSpace,
        num_classes: int,
        *,
        independent_weight: float = 1.0,
        prototype_weight: float = 10.0,
        mimic_weight: float = 5.0,
        extra_dims: int = 32,
        scale: float = 2.0,
        dim: int | None = None,
    ):
        new_dim = None if old.independent is None else old.independent.shape[1]
        super().__init__(old, num_classes, dim=new_dim)
        self.register_buffer("old", check_class_prototypes(old, num_classes))
        independent = check_items(old.get("independent"), "independent")
        if len(independent) != len(self.embeddings):
            raise OldSpaceError(
                f"The independent model must have embedded the same {len(self.embeddings)} "
                f"training items, but got {len(independent)}. Embed the same items by both models."
            )
        self.register_buffer("independent", independent, persistent=False)
        self.basis = ChangeOfBasis(
            dim, independent.shape[1], self.old.shape[1], extra_dims, scale=scale
        )
        self.independent_weight, self.prototype_weight = independent_weight, prototype_weight
        self.mimic_weight = mimic_weight

    def forward(self, new: New, labels: Labels, *, items: Items = None, old: Old = None) -> Terms:
        """Returns `classification`, `compatibility`, `mimicry` and `independent`."""
        stored = self.old_vectors(new, items, old)
        own = self.basis.own_part(new)
        classification = self.classification(own, labels)
        old_like = self.basis(new)[:, : self.old.shape[1]]
        logits = F.normalize(old_like, dim=-1) @ F.normalize(self.old.to(new.dtype), dim=-1).T
        independent = self.independent[require_items(items)].to(new.dtype)
        return {
            "classification": classification,
            "compatibility": self.prototype_weight * F.cross_entropy(logits, labels),
            "mimicry": self.mimic_weight * mimic_loss(old_like, stored),
            "independent": self.independent_weight * mimic_loss(own, independent),
        }

    def query(self, vectors: Float[Tensor, "rows dim"]) -> Float[Tensor, "rows longer"]:
        """Changes the basis; the first dimensions search the old gallery."""
        output: Tensor = self.basis(vectors)
        return output

    def gallery(self, vectors: Float[Tensor, "rows dim"]) -> Float[Tensor, "rows longer"]:
        """Changes the basis, as for queries."""
        return self.query(vectors)

    @classmethod
    def sides(cls, state: Mapping[str, Tensor], options: Mapping[str, Any]) -> Sides:
        """Returns the change of basis for both sides."""
        weights = cls.tensors_of(state, "basis.")
        extra_dims, dim = weights["old_like.weight"].shape
        new_dim, old_dim = (
            len(weights[f"{name}.parametrizations.weight.original"])
            for name in ("rotate_own", "rotate_old")
        )
        basis = ChangeOfBasis(dim, new_dim, old_dim, extra_dims, scale=options["scale"])
        basis.load_state_dict(weights)
        return Sides(query=basis, gallery=basis)


class ChangeOfBasis(nn.Module):
    """Maps the model's embedding to the longer vector of `BT2`, which serves both galleries."""

    def __init__(
        self, dim: int | None, new_dim: int, old_dim: int, extra_dims: int, *, scale: float
    ):
        super().__init__()
        if old_dim > new_dim + extra_dims or (dim is not None and dim < new_dim):
            raise SpaceMismatch(
                f"The embedding must have at least the {new_dim} dimensions of the independent "
                f"model, best {new_dim + old_dim}, and the output at least the {old_dim} of the "
                f"old, but got {dim} and {new_dim + extra_dims}. Raise embedding_dim or extra_dims."
            )
        self.new_dim, self.old_dim, self.scale = new_dim, old_dim, scale
        self.old_like = nn.LazyLinear(extra_dims) if dim is None else nn.Linear(dim, extra_dims)
        self.rotate_own = orthogonal(nn.Linear(new_dim, new_dim, bias=False))
        self.rotate_old = orthogonal(nn.Linear(old_dim, old_dim, bias=False))

    def own_part(self, vectors: Float[Tensor, "rows dim"]) -> Float[Tensor, "rows new_dim"]:
        """Returns the unit part that is trained towards the independent model's vector."""
        if vectors.shape[1] < self.new_dim:
            raise SpaceMismatch(
                f"Embeddings must have at least the {self.new_dim} dimensions of the independent "
                f"model, but got {vectors.shape[1]}. Raise embedding_dim to {self.new_dim} or more."
            )
        return F.normalize(vectors[:, : self.new_dim], dim=-1)

    def forward(self, vectors: Float[Tensor, "rows dim"]) -> Float[Tensor, "rows longer"]:
        """Returns vectors of equal length; the first dimensions fit the old gallery."""
        own = self.rotate_own(self.scale * self.own_part(vectors))
        old_like = F.normalize(self.old_like(vectors.relu()), dim=-1)
        both = torch.cat([old_like, own], dim=-1)
        fits_old, rest = both[:, : self.old_dim], both[:, self.old_dim :]
        return torch.cat([self.rotate_old(fits_old), rest], dim=-1)
