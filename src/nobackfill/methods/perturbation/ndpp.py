"""NDPP, neighbour-driven perturbation (Zhou et al., 2025): neighbours push prototypes apart."""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from nobackfill.errors import ConfigError
from nobackfill.methods.checks import check_not_diverged, check_prototypes, check_same_shape
from nobackfill.ops.matmul import check_precision
from nobackfill.ops.nearest import all_finite, comparable, nearest_checked


def repulsion(
    x: Float[Tensor, "classes dim"],
    p: Float[Tensor, "classes dim"],
    n: Float[Tensor, "classes dim"],
    *,
    k: int,
    include_self: bool = False,
    precision: str = "float32",
    unit: bool = False,
) -> Float[Tensor, "classes dim"]:
    r"""The push that each class gets from its nearest classes.

    .. math::
        r_c = \sum_{j \in N_k(c)} w_{cj} (x_c - n_j), \qquad
        w_{cj} = \frac{\max(0, \cos(p_c, n_j))}{\sum_{i \in N_k(c)} \max(0, \cos(p_c, n_i))},

    where :math:`N_k(c)` are the `k` rows of `n` with the largest cosine to :math:`p_c`, without row
    `c` unless `include_self`. A class whose weights are all 0 is not pushed.

    Memory is linear in the number of classes: similarities exist for one block of rows at a time.

    Args:
        x: Prototypes that are pushed.
        p: Prototypes from which neighbours are sought. All values must be finite.
        n: Prototypes that push. All values must be finite.
        k: Number of neighbours.
        include_self: Whether row `c` of `n` may push class `c`.
        precision: Precision of the similarities, see `inner_products`.
        unit: Whether `p` and `n` have unit length already.
    """
    query, gallery = (p, n) if unit else (F.normalize(p, dim=-1), F.normalize(n, dim=-1))
    query, gallery = comparable(query, gallery)
    neighbor, cosine = nearest_checked(
        query, gallery, k, exclude_self=not include_self, precision=precision, unit=True
    )
    # sum_j w_cj (x_c - n_j) = (sum_j w_cj) x_c - sum_j w_cj n_j
    w = F.normalize(cosine.clamp(min=0), p=1, dim=1, eps=1e-8).to(n.dtype)
    weighted_neighbors = F.embedding_bag(neighbor, n, mode="sum", per_sample_weights=w)
    return w.sum(dim=1, keepdim=True) * x - weighted_neighbors


class NeighborPerturbation(nn.Module):
    r"""Old prototypes, pushed apart once by their old neighbours and every epoch by the new ones.

    .. math::
        \tilde p^{(0)} = p + \alpha_1\, r(p; p), \qquad
        \tilde p^{(t)} = \tilde p^{(t-1)} + \alpha_2\, r(\tilde p^{(t-1)}; q^{(t)}),

    with old prototypes :math:`p`, new prototypes :math:`q^{(t)}` of epoch `t`, and :math:`r` of
    `repulsion`. Neighbours are sought from :math:`p`, as in Algorithm 1 of the paper; its text says
    :math:`\tilde p`. Eq. 8 restarts from :math:`\tilde p^{(0)}` each epoch, Algorithm 1 continues
    from the last epoch; `accumulate` chooses.

    Args:
        old: Old prototypes, one row per class.
        neighbors: Number of classes :math:`k` that push; all others if there are fewer.
        old_strength: Strength :math:`\alpha_1`. With both strengths 0 nothing moves.
        new_strength: Strength :math:`\alpha_2`.
        accumulate: Whether pushes add up over the epochs.
        include_self: Whether the new prototype of a class may push the class itself, as in unused
            code of the authors.
        normalize: Whether prototypes are scaled to unit length first.
        precision: Precision of the neighbour search: "float32", or on GPUs "tf32" or "bfloat16",
            which may swap neighbours whose similarities are almost equal.
    """

    old: Float[Tensor, "classes dim"]
    start: Float[Tensor, "classes dim"]
    moved: Float[Tensor, "classes dim"]

    def __init__(
        self,
        old: Float[Tensor, "classes dim"],
        *,
        neighbors: int = 100,
        old_strength: float = 0.01,
        new_strength: float = 0.01,
        accumulate: bool = True,
        include_self: bool = False,
        normalize: bool = True,
        precision: str = "float32",
    ):
        super().__init__()
        check_prototypes(old)
        check_precision(precision)
        if neighbors < 1:
            raise ConfigError(
                f"neighbors must be at least 1, not {neighbors}. The paper uses 100. For no "
                f"perturbation, use `prototype_alignment`."
            )
        self.neighbors, self.new_strength = neighbors, new_strength
        self.accumulate, self.include_self, self.normalize = accumulate, include_self, normalize
        self.precision = precision
        p = F.normalize(old.detach(), dim=-1) if normalize else old.detach().clone()
        self.register_buffer("old", p)
        push = repulsion(p, p, p, k=neighbors, precision=precision, unit=normalize)
        self.register_buffer("start", torch.add(p, push, alpha=old_strength))
        self.register_buffer("moved", self.start.clone())

    def update(self, new: Float[Tensor, "new_classes new_dim"]) -> None:
        """Moves the prototypes by one epoch, given the new model's prototypes (Eq. 8)."""
        check_same_shape(self.old, new)
        new = new.detach()
        x = self.moved if self.accumulate else self.start
        check_not_diverged(finite=all_finite(new))
        push = repulsion(
            x,
            self.old,
            F.normalize(new, dim=-1) if self.normalize else new,
            k=self.neighbors,
            include_self=self.include_self,
            precision=self.precision,
            unit=self.normalize,
        )
        self.moved = torch.add(x, push, alpha=self.new_strength)
