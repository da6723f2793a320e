"""Upgrade an embedding model without re-embedding the gallery.

The public names, each loaded when it is first asked for: `import nobackfill` and
`nobackfill --help` need no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nobackfill.assessment import Verdict, assess
    from nobackfill.comparison import compare
    from nobackfill.evaluation import compatibility, evaluate, p_scores
    from nobackfill.head import CompatibleHead
    from nobackfill.losses import prototype_loss
    from nobackfill.matrix import CompatibilityMatrix, compatibility_matrix
    from nobackfill.methods import METHODS
    from nobackfill.metrics import retrieval
    from nobackfill.oldspace import OldSpace
    from nobackfill.perturb import NeighborPerturbation, OptimizedPerturbation
    from nobackfill.prototypes import class_means
    from nobackfill.search import nearest
    from nobackfill.vectors import Vectors, load_vectors

__version__ = "0.1.0"

_HOME = {
    "CompatibilityMatrix": "matrix",
    "CompatibleHead": "head",
    "METHODS": "methods",
    "NeighborPerturbation": "perturb",
    "OldSpace": "oldspace",
    "OptimizedPerturbation": "perturb",
    "Vectors": "vectors",
    "Verdict": "assessment",
    "assess": "assessment",
    "class_means": "prototypes",
    "compare": "comparison",
    "compatibility": "evaluation",
    "compatibility_matrix": "matrix",
    "evaluate": "evaluation",
    "load_vectors": "vectors",
    "nearest": "search",
    "p_scores": "evaluation",
    "prototype_loss": "losses",
    "retrieval": "metrics",
}

__all__ = [
    "CompatibilityMatrix",
    "CompatibleHead",
    "METHODS",
    "NeighborPerturbation",
    "OldSpace",
    "OptimizedPerturbation",
    "Vectors",
    "Verdict",
    "__version__",
    "assess",
    "class_means",
    "compare",
    "compatibility",
    "compatibility_matrix",
    "evaluate",
    "load_vectors",
    "nearest",
    "p_scores",
    "prototype_loss",
    "retrieval",
]


def __getattr__(name: str) -> Any:
    """Imports a public name from the room it lives in."""
    if name not in _HOME:
        raise AttributeError(f"module 'nobackfill' has no attribute {name!r}")
    return getattr(import_module(f"nobackfill.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    """Lists the public names."""
    return sorted(__all__)
