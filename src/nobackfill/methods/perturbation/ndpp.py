"""NDPP: old prototypes that their nearest neighbours push apart (Zhou et al., 2025, Eqs. 4-8)."""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from nobackfill.core.page import Readable
from nobackfill.errors import ConfigError
from nobackfill.methods.checks import check_prototypes, check_same_classes
from nobackfill.methods.perturbation.summary import summary
from nobackfill.ops.matmul import check_precision
from nobackfill.ops.nearest import comparable, nearest_checked


def repulsion(
    x: Float[Tensor, "classes dim"],
    p: Float[Tensor, "classes dim"],
    n: Float[Tensor, "classes dim"],
    *,
    k: int,
    include_self: bool = False,
    clamp_weights: bool = True,
    precision: str = "float32",
    unit: bool = False,
) -> Float[Tensor, "classes dim"]:
    r"""Returns the push that each class gets from its nearest classes (Eqs. 4 and 7).

    .. math::
        r_c = \sum_{j \in N_k(c)} w_{cj} (x_c - n_j), \qquad
        w_{cj} = \frac{\max(0, \cos(p_c, n_j))}{\sum_{i \in N_k(c)} \max(0, \cos(p_c, n_i))},

    where :math:`N_k(c)` are the `k` rows of `n` with the largest cosine to :math:`p_c`, without row
    `c` unless `include_self`. A class whose weights are all 0 is not pushed. As printed, there is
    no maximum with 0 (`clamp_weights=False`): neighbours of negative cosine then attract, and a sum
    of weights near 0 pushes far.

    Args:
        x: Prototypes that are pushed.
        p: Prototypes from which neighbours are sought. All values must be finite.
        n: Prototypes that push. All values must be finite.
        k: Number of neighbours.
        include_self: Whether row `c` of `n` may push class `c`.
        clamp_weights: Whether negative cosines count as 0.
        precision: Precision of the similarities, see `inner_products`.
        unit: Whether `p` and `n` have unit length already.
    """
    # Find the neighbours; similarities exist for one block of rows at a time.
    query, gallery = (p, n) if unit else (F.normalize(p, dim=-1), F.normalize(n, dim=-1))
    neighbor, cosine = nearest_checked(  # (classes, k) each
        *comparable(query, gallery),
        k,
        exclude_self=not include_self,
        precision=precision,
        unit=True,
    )

    # Sum over them: sum_j w_cj (x_c - n_j) = (sum_j w_cj) x_c - sum_j w_cj n_j.
    w = shares(cosine, clamp=clamp_weights).to(n.dtype)  # (classes, k)
    weighted_neighbors = F.embedding_bag(neighbor, n, mode="sum", per_sample_weights=w)
    return w.sum(dim=1, keepdim=True) * x - weighted_neighbors  # (classes, dim)


def shares(cosine: Float[Tensor, "rows k"], *, clamp: bool) -> Float[Tensor, "rows k"]:
    """Divides each row by its sum; a row whose sum is 0 becomes 0.

    Example:
        >>> shares(torch.tensor([[0.6, -0.2]]), clamp=True)
        tensor([[1., 0.]])
        >>> shares(torch.tensor([[0.6, -0.2]]), clamp=False)
        tensor([[ 1.5000, -0.5000]])
    """
    if clamp:
        return F.normalize(cosine.clamp(min=0), p=1, dim=1, eps=1e-8)
    total = cosine.sum(dim=1, keepdim=True)
    return torch.where(total == 0, 0.0, cosine / total)


class NeighborPerturbation(Readable, nn.Module):
    r"""Old prototypes, pushed apart once by their old neighbours and every epoch by the new ones.

    .. math::
        \tilde p^{(0)} &= p + \alpha_1\, r(p; p) && \text{(Eqs. 4-5)} \\
        \tilde p^{(t)} &= \tilde p^{(t-1)} + \alpha_2\, r(\tilde p^{(t-1)}; q^{(t)})
        && \text{(Eqs. 7-8)}

    with old prototypes :math:`p`, new prototypes :math:`q^{(t)}` of epoch `t`, and :math:`r` of
    `repulsion`; all are (classes, dim). New neighbours are sought from :math:`p`, as in Algorithm 1
    of the paper; its text says :math:`\tilde p` (`seek_from`). Eq. 8 restarts from
    :math:`\tilde p^{(0)}` each epoch, Algorithm 1 continues from the last epoch; `accumulate`
    chooses.

    Args:
        old: Old prototypes, one row per class.
        neighbors: Number of classes that push, :math:`k`; all others if there are fewer.
        old_strength: Strength of the single push by old neighbours, :math:`\alpha_1`.
        new_strength: Strength of each epoch's push by new neighbours, :math:`\alpha_2`.
        accumulate: Whether pushes add up over the epochs (Algorithm 1) or not (Eq. 8).
        include_self: Whether the new prototype of a class may push the class itself.
        normalize: Whether prototypes are scaled to unit length first. If false, pass prototypes
            that are not scaled (`class_means(..., normalize=False)`), as the trainer does.
        seek_from: Prototypes whose new neighbours are sought: "old" (Algorithm 1), or those "moved"
            so far (text of the paper).
        clamp_weights: Whether neighbours of negative cosine are left out. In the printed equations,
            they attract.
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
        seek_from: str = "old",
        clamp_weights: bool = True,
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
        if seek_from not in ("old", "moved"):
            raise ConfigError(f"seek_from must be one of old, moved, not {seek_from!r}.")
        self.neighbors, self.old_strength, self.new_strength = neighbors, old_strength, new_strength
        self.accumulate, self.include_self, self.normalize = accumulate, include_self, normalize
        self.precision, self.seek_from, self.clamp_weights = precision, seek_from, clamp_weights

        # Eqs. 4-5: the old neighbours push once.
        p = F.normalize(old.detach(), dim=-1) if normalize else old.detach().clone()
        push = repulsion(
            p, p, p, k=neighbors, clamp_weights=clamp_weights, precision=precision, unit=normalize
        )
        self.register_buffer("old", p)
        self.register_buffer("start", torch.add(p, push, alpha=old_strength))
        self.register_buffer("moved", self.start.clone())

    def extra_repr(self) -> str:
        """Returns the prototypes and how far they have moved, for `repr`."""
        return summary(self, self.old, self.moved)

    def update(self, new: Float[Tensor, "new_classes new_dim"]) -> None:
        """Moves the prototypes by one epoch, given the new model's prototypes (Eqs. 7-8)."""
        check_same_classes(self.old, new)
        q = F.normalize(new.detach(), dim=-1) if self.normalize else new.detach()
        x = self.moved if self.accumulate else self.start
        from_old = self.seek_from == "old"
        push = repulsion(
            x,
            self.old if from_old else x,
            q,
            k=self.neighbors,
            include_self=self.include_self,
            clamp_weights=self.clamp_weights,
            precision=self.precision,
            unit=self.normalize and from_old,
        )
        self.moved = torch.add(x, push, alpha=self.new_strength)
