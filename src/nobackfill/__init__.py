"""Upgrade an embedding model without re-embedding the gallery.

The public names, each loaded when it is first asked for: `import nobackfill` and
`nobackfill --help` need no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nobackfill.evaluation.agreement import compare_rankings
    from nobackfill.evaluation.evaluate import compatibility, evaluate, p_scores
    from nobackfill.evaluation.judgements import judge
    from nobackfill.evaluation.matrix import CompatibilityMatrix, compatibility_matrix
    from nobackfill.evaluation.metrics import retrieval
    from nobackfill.evaluation.query_changes import compare
    from nobackfill.head import CompatibleHead
    from nobackfill.head.assess.assess import Verdict, assess
    from nobackfill.head.assess.without_labels import assess_rankings
    from nobackfill.methods import METHODS
    from nobackfill.methods.losses import prototype_loss
    from nobackfill.methods.old_space import OldSpace
    from nobackfill.methods.perturbation import NeighborPerturbation, OptimizedPerturbation
    from nobackfill.methods.prototypes import class_means
    from nobackfill.ops.nearest import nearest
    from nobackfill.vectors import Vectors, load_vectors
    from nobackfill.vectors.arrays import as_vectors

__version__ = "0.1.0"

_HOME = {
    "CompatibilityMatrix": "evaluation.matrix",
    "CompatibleHead": "head",
    "METHODS": "methods",
    "NeighborPerturbation": "methods.perturbation",
    "OldSpace": "methods.old_space",
    "OptimizedPerturbation": "methods.perturbation",
    "Vectors": "vectors",
    "Verdict": "head.assess.assess",
    "as_vectors": "vectors.arrays",
    "assess": "head.assess.assess",
    "assess_rankings": "head.assess.without_labels",
    "class_means": "methods.prototypes",
    "compare": "evaluation.query_changes",
    "compare_rankings": "evaluation.agreement",
    "compatibility": "evaluation.evaluate",
    "compatibility_matrix": "evaluation.matrix",
    "evaluate": "evaluation.evaluate",
    "judge": "evaluation.judgements",
    "load_vectors": "vectors",
    "nearest": "ops.nearest",
    "p_scores": "evaluation.evaluate",
    "prototype_loss": "methods.losses",
    "retrieval": "evaluation.metrics",
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
    "as_vectors",
    "assess",
    "assess_rankings",
    "class_means",
    "compare",
    "compare_rankings",
    "compatibility",
    "compatibility_matrix",
    "evaluate",
    "judge",
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
