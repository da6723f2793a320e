"""Every method by name. A new one is a file, a line here, a test and a recipe."""

from nobackfill.methods.base import ClassifyingMethod, Method
from nobackfill.methods.bct import BCT
from nobackfill.methods.independent import Independent
from nobackfill.methods.ndpp import NDPP
from nobackfill.methods.ndpp_old import NDPPOld
from nobackfill.methods.odpp import ODPP
from nobackfill.methods.odpp_old import ODPPOld
from nobackfill.methods.prototype_alignment import PrototypeAlignment

METHODS: dict[str, type[Method]] = {
    "independent": Independent,
    "prototype_alignment": PrototypeAlignment,
    "ndpp_old": NDPPOld,
    "ndpp": NDPP,
    "odpp_old": ODPPOld,
    "odpp": ODPP,
    "bct": BCT,
}

__all__ = ["METHODS", "ClassifyingMethod", "Method"]
