"""Defaults shared by recipes, methods, heads and commands."""

DEFAULT_METHOD = "member_contrast"  # of a recipe with an old model and no method
DEFAULT_HEAD_METHOD = "auto"  # of `fit`, `assess` and CompatibleHead
DEFAULT_TEMPERATURE = 0.07  # of every softmax over similarities, as in the paper
