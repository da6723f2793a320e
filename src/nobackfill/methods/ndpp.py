"""NDPP and NDPP-old: align with old prototypes that their neighbours have pushed apart.

Zhou et al., Prototype Perturbation for Relaxing Alignment Constraints in Backward-Compatible
Learning, 2025, Eqs. 4-8 and Algorithm 1. https://arxiv.org/abs/2503.14824
"""

from typing import Any

from nobackfill.methods.old_space import OldSpace
from nobackfill.methods.options import passes_on
from nobackfill.methods.perturbation.ndpp import NeighborPerturbation
from nobackfill.methods.perturbed_alignment import PerturbedAlignment


class NDPP(PerturbedAlignment):
    r"""`PrototypeAlignment` towards prototypes that old and new neighbours push apart.

    Before training, the :math:`k` nearest old prototypes of other classes, :math:`N_k(c)`, push
    each prototype away once (Eqs. 4-5):

    .. math::
        r_c = \sum_{j \in N_k(c)} w_{cj} (p_c - p_j), \qquad
        w_{cj} = \frac{\max(0, \cos(p_c, p_j))}{\sum_{i \in N_k(c)} \max(0, \cos(p_c, p_i))}, \qquad
        \tilde p_c = p_c + \alpha_1 \, r_c

    The loss is Eq. 6. Only the prototype that attracts an embedding is moved:

    .. math::
        \mathrm{CE}(W e, y) - \lambda \log \frac{\exp(\cos(e, \tilde p_y) / \tau)}
        {\exp(\cos(e, \tilde p_y) / \tau) + \sum_{c \ne y} \exp(\cos(e, p_c) / \tau)}

    At the start of each epoch, the new model's prototypes :math:`q` push as well (Eqs. 7-8). With
    `accumulate = false`, this push is added to the prototypes of Eq. 5, :math:`\tilde p^{(0)}`:

    .. math::
        r'_c = \sum_{j \in N_k(c)} w_{cj} (\tilde p_c - q_j), \qquad
        w_{cj} = \frac{\max(0, \cos(p_c, q_j))}{\sum_{i \in N_k(c)} \max(0, \cos(p_c, q_i))}, \qquad
        \tilde p_c = \tilde p^{(0)}_c + \alpha_2 \, r'_c

    By default, as in Algorithm 1, it is added to the prototypes of the last epoch:

    .. math::
        \tilde p_c \leftarrow \tilde p_c + \alpha_2 \, r'_c

    Shapes: :math:`p, \tilde p, q, r` are (classes, dim), :math:`w` is (classes, k) and :math:`e` is
    (batch, dim). Negative cosines count as 0, so a class without a neighbour of positive cosine is
    not pushed.

    New classes:
        New classes take part like all others: their prototypes are means of the old model's
        vectors, although it was never trained on their images. They push and are pushed too.

    Differences:
        The paper's Algorithm 1 adds up the pushes of all epochs (`accumulate = true`, the default).
        Its Eq. 8 starts each epoch where `NDPPOld` ends (`accumulate = false`); with the printed
        strengths, prototypes then hardly move. Neighbours are those of the old prototype, as in
        Algorithm 1; in the text of the paper they are those of the moved one
        (`seek_from = "moved"`). The equations have no maximum with 0 (`clamp_weights = false`). The
        paper does not say whether embeddings, or their means, have unit length (`unit_items`,
        `normalize`). A class's own new prototype does not push it, unless `include_self = true`, as
        in unused code that the authors published.

    Relations:
        `NDPPOld` stops after the push of the old neighbours.
    """

    perturb: NeighborPerturbation
    __init__ = passes_on(NeighborPerturbation, before="warmup_epochs")(PerturbedAlignment.__init__)

    def make_perturbation(self, old: OldSpace, **options: Any) -> NeighborPerturbation:
        """Pushes the prototypes away from their old neighbours (Eqs. 4-5)."""
        return NeighborPerturbation(self.old, **options)


class NDPPOld(NDPP):
    r"""`NDPP` with the push of the old neighbours only (Eqs. 4-6), once before training.

    .. math::
        \mathrm{CE}(W e, y) - \lambda \log \frac{\exp(\cos(e, \tilde p_y) / \tau)}
        {\exp(\cos(e, \tilde p_y) / \tau) + \sum_{c \ne y} \exp(\cos(e, p_c) / \tau)}, \qquad
        \tilde p_c = p_c + \alpha_1 \sum_{j \in N_k(c)} w_{cj} (p_c - p_j)

    Relations:
        `NDPP` continues from here with the new model's prototypes.
    """

    @passes_on(
        NDPP, without=["new_strength", "accumulate", "include_self", "seek_from", "warmup_epochs"]
    )
    def __init__(self, old: OldSpace, num_classes: int, **options: Any):
        super().__init__(old, num_classes, **options)

    def start_epoch(self, epoch: int, epochs: int, **unused: Any) -> None:
        """Does nothing: the prototypes moved before training."""
