"""Controls: alignment with class means, NDPP and ODPP, with the linear map on queries of Janus.

Zhou et al., Prototype Perturbation for Relaxing Alignment Constraints in Backward-Compatible
Learning, 2025. https://arxiv.org/abs/2503.14824. The map is ours.
"""

from typing import Any, ClassVar

from jaxtyping import Float
from torch import Tensor

from nobackfill.methods.ndpp import NDPP
from nobackfill.methods.odpp import ODPP
from nobackfill.methods.old_space import OldSpace
from nobackfill.methods.options import passes_on
from nobackfill.methods.prototype_alignment import PrototypeAlignment
from nobackfill.methods.query_map import MappedQueries


class MappedAlignment(MappedQueries):
    r"""A method of alignment that compares mapped queries.

    Args:
        share: Share of the alignment's gradient that reaches the model, :math:`\lambda`.
    """

    paper = "ours"
    year: ClassVar[int | None] = None
    old: Float[Tensor, "classes old_dim"]

    def __init__(
        self,
        old: OldSpace,
        num_classes: int,
        *,
        share: float = 0.5,
        dim: int | None = None,
        **alignment: Any,
    ):
        super().__init__(old, num_classes, **alignment)
        self.add_map(dim, self.old.shape[1], share=share)


class PrototypeAlignmentMapped(MappedAlignment, PrototypeAlignment):
    r"""`PrototypeAlignment` of mapped queries: a linear map of the embedding is aligned.

    .. math::
        \mathrm{CE}(W e, y) - \mu \log \frac{\exp(\cos(B e', p_y) / \tau)}
        {\sum_c \exp(\cos(B e', p_c) / \tau)},
        \qquad e' = \lambda e + (1 - \lambda)\, \mathrm{sg}(e)

    A control of `Janus`, which has the same map: their difference is that of the losses.

    Dimensions:
        Free: the map goes from the new dimension to the old.

    Relations:
        With the identity in place of :math:`B` it is `PrototypeAlignment`.
    """

    __init__ = passes_on(PrototypeAlignment, before="share")(MappedAlignment.__init__)


class NDPPMapped(MappedAlignment, NDPP):
    r"""`NDPP` of mapped queries: a linear map of the embedding is aligned.

    .. math::
        \mathrm{CE}(W e, y) - \mu \log \frac{\exp(\cos(B e', \tilde p_y) / \tau)}
        {\exp(\cos(B e', \tilde p_y) / \tau) + \sum_{c \ne y} \exp(\cos(B e', p_c) / \tau)},
        \qquad e' = \lambda e + (1 - \lambda)\, \mathrm{sg}(e)

    The new prototypes that push are means of :math:`B e`. A control of `Janus`, which has the same
    map.

    Dimensions:
        Free: the map goes from the new dimension to the old.

    Relations:
        With the identity in place of :math:`B` it is `NDPP`.
    """

    __init__ = passes_on(NDPP, before="share")(MappedAlignment.__init__)


class ODPPMapped(MappedAlignment, ODPP):
    r"""`ODPP` of mapped queries: a linear map of the embedding is aligned.

    .. math::
        \mathrm{CE}(W e, y) - \mu \log \frac{\exp(\cos(B e', \tilde p_y) / \tau)}
        {\exp(\cos(B e', \tilde p_y) / \tau) + \sum_{c \ne y} \exp(\cos(B e', p_c) / \tau)},
        \qquad e' = \lambda e + (1 - \lambda)\, \mathrm{sg}(e)

    Prototypes keep away from means of :math:`B e`. A control of `Janus`, which has the same map.

    Dimensions:
        Free: the map goes from the new dimension to the old.

    Relations:
        With the identity in place of :math:`B` it is `ODPP`.
    """

    __init__ = passes_on(ODPP, before="share")(MappedAlignment.__init__)
