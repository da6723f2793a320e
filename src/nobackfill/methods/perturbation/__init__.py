"""Old prototypes, moved apart where they are crowded.

`NeighborPerturbation` (NDPP) lets the nearest classes push; `OptimizedPerturbation` (ODPP) takes
gradient steps until no two prototypes are too close. Both are told the new model's prototypes
once an epoch by `update`, and hold the result in `moved`.
"""

from nobackfill.methods.perturbation.ndpp import NeighborPerturbation
from nobackfill.methods.perturbation.odpp import OptimizedPerturbation

__all__ = ["NeighborPerturbation", "OptimizedPerturbation"]
