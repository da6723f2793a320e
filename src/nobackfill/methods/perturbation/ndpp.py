"""NDPP: crowded classes make room. Zhou et al., 2025, section "neighbor-driven perturbation"."""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from nobackfill.errors import ConfigError
from nobackfill.methods.checks import check_not_diverged, check_prototypes, check_same_shape
from nobackfill.methods.perturbation.ndpp_fused import kind_of_products, moved_at_once
from nobackfill.ops.kernels import usable
from nobackfill.ops.matmul import check_precision
from nobackfill.ops.nearest import all_finite, best_of_all, comparable


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
    r"""Where the neighbours of each class push it.

    .. math::
        r_c = \sum_{j \in N_k(c)} w_{cj} (x_c - n_j), \qquad
        w_{cj} = \frac{\max(0, \cos(p_c, n_j))}{\sum_{i \in N_k(c)} \max(0, \cos(p_c, n_i))},

    where :math:`N_k(c)` are the `k` rows of `n`, other than `c` unless `include_self`, with the
    largest cosine to :math:`p_c`. A class without a neighbour on its side (all weights 0) is not
    pushed.

    Memory is linear in the number of classes: similarities exist for a block of rows at a time.
    They are computed in `precision`, see `inner_products`; the weights are theirs too. All must be
    finite; `unit` says that `p` and `n` are of unit length already.
    """
    query, gallery = (p, n) if unit else (F.normalize(p, dim=-1), F.normalize(n, dim=-1))
    query, gallery = comparable(query, gallery)
    neighbor, cosine = best_of_all(
        query, gallery, k, exclude_self=not include_self, precision=precision, unit=True
    )
    if usable(x):
        from nobackfill.ops.kernels.ndpp_pushes import fits, pushes

        if fits(x, n, cosine):
            return pushes(x, n, neighbor, cosine)
    return weighted_pushes(x, n, neighbor, cosine)


def weighted_pushes(
    x: Float[Tensor, "classes dim"],
    n: Float[Tensor, "classes dim"],
    neighbor: Int[Tensor, "classes k"],
    cosine: Float[Tensor, "classes k"],
) -> Float[Tensor, "classes dim"]:
    """The sum in `repulsion`, given the neighbours."""
    w = F.normalize(cosine.clamp(min=0), p=1, dim=1, eps=1e-8).to(n.dtype)
    pull = F.embedding_bag(neighbor, n, mode="sum", per_sample_weights=w)  # sum_j w_cj n_j
    return w.sum(dim=1, keepdim=True) * x - pull


class NeighborPerturbation(nn.Module):
    r"""Old prototypes, pushed apart by their old neighbours once and by the new ones each epoch.

    .. math::
        \tilde p^{(0)} = p + \alpha_1\, r(p; p), \qquad
        \tilde p^{(t)} = \tilde p^{(t-1)} + \alpha_2\, r(\tilde p^{(t-1)}; q^{(t)}),

    with :math:`p` the old and :math:`q^{(t)}` the new prototypes of epoch `t`, and :math:`r` as in
    `repulsion`, whose neighbours are sought from :math:`p` (Algorithm 1 of the paper; its text
    says :math:`\tilde p`). Its Eq. 8 restarts from :math:`\tilde p^{(0)}` each epoch, its
    Algorithm 1 goes on from the last; `accumulate` chooses.

    Args:
        old: The old prototypes, one row per class.
        neighbors: How many classes push, :math:`k`; all others, where there are fewer.
        old_strength: :math:`\alpha_1`. With both strengths 0 nothing moves.
        new_strength: :math:`\alpha_2`.
        accumulate: Whether pushes add up over the epochs.
        include_self: Whether the new prototype of a class may push the class itself, as in
            left-over code of the authors.
        normalize: Whether prototypes are made unit first.
        precision: In which neighbours are sought: "float32", or for GPUs "tf32" or "bfloat16",
            which may mistake the last neighbours for others as near.
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
                f"wanted at least one neighbour, but got neighbors={neighbors}. The paper takes "
                f"100; for no perturbation at all take `prototype_alignment`."
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
        """Moves `moved` on by one epoch, given the new model's prototypes."""
        check_same_shape(self.old, new)
        new = new.detach()
        x = self.moved if self.accumulate else self.start
        k = min(self.neighbors, len(new) - (not self.include_self))
        kind = kind_of_products(x, self.old, new, k, self.precision) if self.normalize else None
        if kind is not None:
            moved, broken = moved_at_once(
                x, self.old, new, k, self.new_strength, own=self.include_self, kind=kind
            )
            check_not_diverged(finite=not broken.item())
            self.moved = moved
            return
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
