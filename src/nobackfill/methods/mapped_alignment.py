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
        weight: Weight of the alignment, :math:`\mu`.
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
    r"""`PrototypeAlignment` with mapped queries: aligns a linear map of the embedding.

    .. math::
        \mathrm{CE}(W e, y) - \mu \log \frac{\exp(\cos(B e', p_y) / \tau)}
        {\sum_c \exp(\cos(B e', p_c) / \tau)},
        \qquad e' = \lambda e + (1 - \lambda)\, \mathrm{sg}(e)

    This is a control for `Janus` and `MemberContrast`, which have the same map: results differ only
    because of the losses.

    Dimensions:
        The new embedding may have any dimension: the map goes from the new dimension to the old
        one.

    Old view:
        Prototypes are computed once, from images without augmentation.

    Relations:
        With the identity in place of :math:`B`, it is `PrototypeAlignment`.
    """

    __init__ = passes_on(PrototypeAlignment, before="share")(MappedAlignment.__init__)


class NDPPMapped(MappedAlignment, NDPP):
    r"""`NDPP` with mapped queries: aligns a linear map of the embedding.

    .. math::
        \mathrm{CE}(W e, y) - \mu \log \frac{\exp(\cos(B e', \tilde p_y) / \tau)}
        {\exp(\cos(B e', \tilde p_y) / \tau) + \sum_{c \ne y} \exp(\cos(B e', p_c) / \tau)},
        \qquad e' = \lambda e + (1 - \lambda)\, \mathrm{sg}(e)

    The new prototypes that push are means of :math:`B e`. This is a control for `Janus`, which has
    the same map.

    Dimensions:
        The new embedding may have any dimension: the map goes from the new dimension to the old
        one.

    Old view:
        Prototypes are computed once, from images without augmentation.

    Relations:
        With the identity in place of :math:`B`, it is `NDPP`.
    """

    __init__ = passes_on(NDPP, before="share")(MappedAlignment.__init__)


class ODPPMapped(MappedAlignment, ODPP):
    r"""`ODPP` with mapped queries: aligns a linear map of the embedding.

    .. math::
        \mathrm{CE}(W e, y) - \mu \log \frac{\exp(\cos(B e', \tilde p_y) / \tau)}
        {\exp(\cos(B e', \tilde p_y) / \tau) + \sum_{c \ne y} \exp(\cos(B e', p_c) / \tau)},
        \qquad e' = \lambda e + (1 - \lambda)\, \mathrm{sg}(e)

    Prototypes are kept apart from means of :math:`B e`. This is a control for `Janus`, which has
    the same map.

    Dimensions:
        The new embedding may have any dimension: the map goes from the new dimension to the old
        one.

    Old view:
        Prototypes are computed once, from images without augmentation.

    Relations:
        With the identity in place of :math:`B`, it is `ODPP`.
    """

    __init__ = passes_on(ODPP, before="share")(MappedAlignment.__init__)
