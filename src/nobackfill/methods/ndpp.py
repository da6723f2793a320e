"""NDPP: align with old prototypes that old and new neighbours have pushed apart.

Zhou et al., Prototype Perturbation for Relaxing Alignment Constraints in Backward-Compatible
Learning, 2025, Eqs. 4-8 and Algorithm 1. https://arxiv.org/abs/2503.14824
"""

from nobackfill.methods.base import Embeddings, Prototypes
from nobackfill.methods.old_space import OldSpace
from nobackfill.methods.perturbation import NeighborPerturbation
from nobackfill.methods.prototype_alignment import PrototypeAlignment


class NDPP(PrototypeAlignment):
    r"""`PrototypeAlignment` towards prototypes that neighbours push apart, anew each epoch.

    .. math::
        \mathrm{CE}(W e, y) - \lambda \log \frac{\exp(\cos(e, \tilde p_y) / \tau)}
        {\exp(\cos(e, \tilde p_y) / \tau) + \sum_{c \ne y} \exp(\cos(e, p_c) / \tau)}, \qquad
        \tilde p_c \leftarrow \tilde p_c + \alpha_2 \, r_c

    .. math::
        r_c = \sum_{j \in N_k(c)} w_{cj} (\tilde p_c - q_j), \qquad
        w_{cj} = \frac{\max(0, \cos(p_c, q_j))}{\sum_{i \in N_k(c)} \max(0, \cos(p_c, q_i))}

    The start is that of `NDPPOld`. :math:`q` are the new model's prototypes at the beginning of an
    epoch, and :math:`N_k(c)` the :math:`k` of other classes nearest to :math:`p_c`. Only the
    prototype that an embedding is drawn to is moved; those it is kept away from stay where they
    were.

    New classes:
        Take part like all others: their prototypes are the old model's means of images it was
        never trained on, and push and are pushed too.

    Old view:
        None: prototypes are made once, of images as for a test.

    Differences:
        The paper's Algorithm 1 adds each epoch's push to the last (`accumulate = true`, the
        default); its Eq. 8 begins each epoch where `NDPPOld` ends (`accumulate = false`), and with
        the printed strengths prototypes then hardly move. Neighbours are sought from the old
        prototype, as in Algorithm 1; the text seeks them from the moved one. A class's own new
        prototype does not push it, unless `include_self`, as in left-over code of the authors.

    Relations:
        `NDPPOld` stops after the push of the old neighbours.

    Args:
        old: Of which the prototypes are used.
        num_classes: How many classes the new model is trained on.
        weight: Share of the contrast.
        temperature: Of the contrast.
        neighbors: How many classes push, :math:`k`.
        old_strength: How far old neighbours push, once: :math:`\alpha_1` of `NDPPOld`.
        new_strength: How far new neighbours push, each epoch: :math:`\alpha_2`.
        accumulate: Whether pushes add up over the epochs (Algorithm 1) or not (Eq. 8).
        include_self: Whether the new prototype of a class may push the class itself.
        normalize: Whether prototypes are made unit first.
        precision: In which neighbours are sought: "float32", or for GPUs "tf32" or "bfloat16".
        warmup_epochs: How many epochs the new model is left alone before it pushes.
    """

    perturb: NeighborPerturbation

    def __init__(
        self,
        old: OldSpace,
        num_classes: int,
        *,
        weight: float = 1.0,
        temperature: float = 0.07,
        neighbors: int = 100,
        old_strength: float = 0.01,
        new_strength: float = 0.01,
        accumulate: bool = True,
        include_self: bool = False,
        normalize: bool = True,
        precision: str = "float32",
        warmup_epochs: int = 0,
    ):
        super().__init__(old, num_classes, weight=weight, temperature=temperature)
        self.warmup_epochs = warmup_epochs
        self.perturb = NeighborPerturbation(
            self.old,
            neighbors=neighbors,
            old_strength=old_strength,
            new_strength=new_strength,
            accumulate=accumulate,
            include_self=include_self,
            normalize=normalize,
            precision=precision,
        )

    def start_epoch(
        self, epoch: int, epochs: int, *, new_prototypes: Prototypes, new_embeddings: Embeddings
    ) -> None:
        """Lets the new model's neighbours push."""
        if epoch >= self.warmup_epochs:
            self.perturb.update(new_prototypes())
