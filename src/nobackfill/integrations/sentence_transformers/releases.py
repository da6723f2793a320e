"""The classes of sentence-transformers that we use: other releases keep them in other modules."""

from importlib import import_module
from typing import Any


def from_first(*names: str) -> Any:
    """Imports the first module that this release has; raises the error of the last."""
    for name in names[:-1]:
        try:
            return import_module(f"sentence_transformers.{name}")
        except ModuleNotFoundError:
            continue
    return import_module(f"sentence_transformers.{names[-1]}")


# In 5.0, all of them are in the second module of each pair; in 6.0, importing it warns.
_modules = from_first("sentence_transformer.modules", "models")
_losses = from_first("sentence_transformer.losses", "losses")
_evaluation = from_first("sentence_transformer.evaluation", "evaluation")

Dense, Dropout = _modules.Dense, _modules.Dropout
Normalize, Router = _modules.Normalize, _modules.Router
MultipleNegativesRankingLoss = _losses.MultipleNegativesRankingLoss
SentenceEvaluator = _evaluation.SentenceEvaluator
