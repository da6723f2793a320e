"""Names of the parts of a collection: those that models are trained on, and those searched."""

TRAIN = frozenset({"train", "training", "fit"})
SEARCHED = frozenset({"validation", "valid", "val", "dev", "test", "eval", "evaluation"})
