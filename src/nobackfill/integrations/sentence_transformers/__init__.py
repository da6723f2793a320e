"""Fine-tune with sentence-transformers without embedding the documents again.

`CompatibleLoss` wraps the loss of a training script, `CompatibilityEvaluator` measures the upgrade
during training, and `add_query_map` prepares a model whose old vectors have another dimension.
Requires sentence-transformers 5 or 6.
"""

from nobackfill.integrations.sentence_transformers.evaluator import CompatibilityEvaluator
from nobackfill.integrations.sentence_transformers.loss import CompatibleLoss
from nobackfill.integrations.sentence_transformers.old_texts import OldTexts
from nobackfill.integrations.sentence_transformers.query_map import add_query_map

__all__ = ["CompatibilityEvaluator", "CompatibleLoss", "OldTexts", "add_query_map"]
