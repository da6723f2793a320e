"""NDPP-old: align with old prototypes that their old neighbours have pushed apart, once.

Zhou et al., Prototype Perturbation for Relaxing Alignment Constraints in Backward-Compatible
Learning, 2025, Eqs. 4-6. https://arxiv.org/abs/2503.14824
"""

from nobackfill.methods.old_space import OldSpace
from nobackfill.methods.perturbation import NeighborPerturbation
from nobackfill.methods.prototype_alignment import PrototypeAlignment


class NDPPOld(PrototypeAlignment):
    r"""`PrototypeAlignment` towards prototypes that their old neighbours have pushed apart.

    .. math::
        \mathrm{CE}(W e, y) - \lambda \log \frac{\exp(\cos(e, \tilde p_y) / \tau)}
        {\exp(\cos(e, \tilde p_y) / \tau) + \sum_{c \ne y} \exp(\cos(e, p_c) / \tau)}, \qquad
        \tilde p_c = p_c + \alpha_1 \, r_c

    .. math::
        r_c = \sum_{j \in N_k(c)} w_{cj} (p_c - p_j), \qquad
        w_{cj} = \frac{\max(0, \cos(p_c, p_j))}{\sum_{i \in N_k(c)} \max(0, \cos(p_c, p_i))}

    :math:`N_k(c)` are the :math:`k` old prototypes nearest to that of the class. Only the
    prototype that an embedding is drawn to is moved; those it is kept away from stay where they
    were. A class without a neighbour on its side is not pushed.

    New classes:
        Take part like all others: their prototypes are the old model's means of images it was
        never trained on, and push and are pushed too.

    Old view:
        None: prototypes are made once, of images as for a test.

    Relations:
        `NDPP` goes on from here and lets the new model's prototypes push too.

    Args:
        old: Of which the prototypes are used.
        num_classes: How many classes the new model is trained on.
        weight: Share of the contrast.
        temperature: Of the contrast.
        neighbors: How many classes push, :math:`k`.
        old_strength: How far they push, :math:`\alpha_1`.
        normalize: Whether prototypes are made unit first.
        precision: In which neighbours are sought: "float32", or for GPUs "tf32" or "bfloat16".
    """

    def __init__(
        self,
        old: OldSpace,
        num_classes: int,
        *,
        weight: float = 1.0,
        temperature: float = 0.07,
        neighbors: int = 100,
        old_strength: float = 0.01,
        normalize: bool = True,
        precision: str = "float32",
    ):
        super().__init__(old, num_classes, weight=weight, temperature=temperature)
        self.perturb = NeighborPerturbation(
            self.old,
            neighbors=neighbors,
            old_strength=old_strength,
            normalize=normalize,
            precision=precision,
        )
