"""Table of all methods by name. A new method is a class, a line here, a test and a recipe."""

from nobackfill.core.suggest import suggest
from nobackfill.errors import UnknownName
from nobackfill.methods.advbct import AdvBCT
from nobackfill.methods.base import ClassifyingMethod, Method, Sides
from nobackfill.methods.bct import BCT
from nobackfill.methods.bt2 import BT2
from nobackfill.methods.cores import CoReS
from nobackfill.methods.cross_supcon import CrossSupCon
from nobackfill.methods.dual_tuning import DualTuning
from nobackfill.methods.independent import Independent
from nobackfill.methods.independent_contrastive import IndependentContrastive
from nobackfill.methods.janus import Janus
from nobackfill.methods.lwf import LwF
from nobackfill.methods.mapped_alignment import (
    NDPPMapped,
    ODPPMapped,
    PrototypeAlignmentMapped,
)
from nobackfill.methods.member_contrast import MemberContrast
from nobackfill.methods.mimic import Mimic
from nobackfill.methods.ndpp import NDPP, NDPPOld
from nobackfill.methods.odpp import ODPP, ODPPOld
from nobackfill.methods.prototype_alignment import PrototypeAlignment
from nobackfill.methods.prototype_mimic import PrototypeMimic
from nobackfill.methods.ract import RACT
from nobackfill.methods.rbcl import RBCL
from nobackfill.methods.rm import RM
from nobackfill.methods.sspl import SSPL, SSPLCE
from nobackfill.methods.unibct import UniBCT
from nobackfill.methods.unibct_spr import UniBCTSPR


class MethodTable(dict[str, type[Method]]):
    """Methods by name; an unknown name raises an error with a suggestion."""

    def __missing__(self, name: str) -> type[Method]:
        raise UnknownName(f"unknown method `{name}`. {suggest(str(name), self)}")


METHODS = MethodTable(
    {
        # without an old model
        "independent": Independent,
        "independent_contrastive": IndependentContrastive,
        "cores": CoReS,
        # Zhou et al. 2025
        "prototype_alignment": PrototypeAlignment,
        "ndpp_old": NDPPOld,
        "ndpp": NDPP,
        "odpp_old": ODPPOld,
        "odpp": ODPP,
        # methods of other papers
        "bct": BCT,
        "lwf": LwF,
        "unibct": UniBCT,
        "unibct_spr": UniBCTSPR,
        "ract": RACT,
        "advbct": AdvBCT,
        "dual_tuning": DualTuning,
        "sspl": SSPL,
        "sspl_ce": SSPLCE,
        "bt2": BT2,
        "rm": RM,
        "rbcl": RBCL,
        # ours
        "mimic": Mimic,
        "prototype_mimic": PrototypeMimic,
        "cross_supcon": CrossSupCon,
        "janus": Janus,
        "member_contrast": MemberContrast,
        # controls: the same map on queries, with the losses of Zhou et al.
        "prototype_alignment_mapped": PrototypeAlignmentMapped,
        "ndpp_mapped": NDPPMapped,
        "odpp_mapped": ODPPMapped,
    }
)

__all__ = ["METHODS", "ClassifyingMethod", "Method", "Sides"]
