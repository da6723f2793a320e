"""The classes of sentence-transformers that we use: other releases keep them in other modules."""

from importlib import import_module
from importlib.util import find_spec
from inspect import getsource
from typing import Any

if find_spec("sentence_transformers") is None:
    raise ModuleNotFoundError(
        "sentence-transformers is not installed. `pip install 'nobackfill[sentence-transformers]'`",
        name="sentence_transformers",
    )


def from_first(*names: str) -> Any:
    """Imports the first module that this release has; raises the error of the last."""
    for name in names[:-1]:
        try:
            return import_module(f"sentence_transformers.{name}")
        except ModuleNotFoundError:
            continue
    return import_module(f"sentence_transformers.{names[-1]}")


# Release 6 has the first module of each pair, release 5.0 the second, which warns in release 6.
modules = from_first("sentence_transformer.modules", "models")
losses = from_first("sentence_transformer.losses", "losses")
evaluation = from_first("sentence_transformer.evaluation", "evaluation")

Dense, Dropout = modules.Dense, modules.Dropout
Normalize, Router = modules.Normalize, modules.Router
MultipleNegativesRankingLoss = losses.MultipleNegativesRankingLoss
SentenceEvaluator = evaluation.SentenceEvaluator

# Releases before 5.3 log the terms of a loss by a method that transformers 5.2 removed.
LOGS_TERMS = hasattr(import_module("transformers").Trainer, "_nested_gather") or (
    "trainer_pt_utils"
    in getsource(import_module("sentence_transformers").SentenceTransformerTrainer.log)
)
