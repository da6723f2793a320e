"""What a space looks like: how crowded its prototypes are, and a plane to see them on."""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor


def pair_cosines(prototypes: Float[Tensor, "classes dim"]) -> Float[Tensor, " pairs"]:
    """The cosine of every pair of different classes, each pair once, row by row.

    Example:
        >>> pair_cosines(torch.tensor([[1.0, 0.0], [2.0, 0.0], [0.0, 1.0]]))
        tensor([1., 0., 0.])
    """
    unit = F.normalize(prototypes, dim=-1)
    row, column = torch.triu_indices(len(unit), len(unit), offset=1, device=unit.device)
    return (unit @ unit.T)[row, column]


def cosine_spread(prototypes: Float[Tensor, "classes dim"], *, center: bool = False) -> float:
    r"""The standard deviation of the cosines between prototypes: low where they are evenly apart.

    .. math::
        \mathrm{std}_{c < c'}\, \cos(\mu_c - m, \mu_{c'} - m), \qquad
        m = \bar\mu \;\text{with `center`, else } 0

    Papyan et al. subtract the mean of all classes, the paper does not say; so both can be had.
    """
    shifted = prototypes - prototypes.mean(dim=0) if center else prototypes
    return pair_cosines(shifted).std(correction=0).item()


def crowded_groups(
    prototypes: Float[Tensor, "classes dim"], groups: Int[Tensor, " classes"], count: int
) -> list[int]:
    """The groups of classes whose prototypes lie nearest to each other, the most crowded first.

    Crowdedness is the mean cosine over the pairs of a group. Groups of one class have none.
    """
    unit = F.normalize(prototypes, dim=-1)
    crowdedness = {}
    for group in groups.unique().tolist():
        members = unit[groups == group]
        if len(members) > 1:
            crowdedness[group] = pair_cosines(members).mean().item()
    return sorted(crowdedness, key=lambda group: -crowdedness[group])[:count]


def principal_plane(
    vectors: Float[Tensor, "items dim"],
) -> tuple[Float[Tensor, " dim"], Float[Tensor, "dim 2"]]:
    """The centre of some vectors, and the two directions in which they differ most (PCA).

    The sign of a direction is chosen so that its largest entry is positive.
    """
    center = vectors.mean(dim=0)
    _, _, directions = torch.linalg.svd(vectors - center, full_matrices=False)
    two = directions[:2]
    sign = two.gather(1, two.abs().argmax(dim=1, keepdim=True)).sign()
    return center, (two * sign).T
