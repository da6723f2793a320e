"""Old prototypes, moved apart where they are too close.

`NeighborPerturbation` (NDPP) pushes them away from their nearest classes. `OptimizedPerturbation`
(ODPP) takes gradient steps until no two prototypes are too close. Both get the new model's
prototypes once an epoch (`update`) and store the result in `moved`.
"""

from nobackfill.methods.perturbation.ndpp import NeighborPerturbation
from nobackfill.methods.perturbation.odpp import OptimizedPerturbation

__all__ = ["NeighborPerturbation", "OptimizedPerturbation"]
