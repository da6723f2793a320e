"""Defaults that recipes, methods, heads and commands share."""

DEFAULT_METHOD = "janus"  # of a recipe that names none
DEFAULT_HEAD_METHOD = "cross_supcon"  # of `fit`, `assess` and CompatibleHead
DEFAULT_TEMPERATURE = 0.07  # of every softmax over similarities, as in the paper
