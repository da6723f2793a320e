"""Training: the loop, the parts of the old model that a method needs, and the run folder."""

from nobackfill.training.loop import train

__all__ = ["train"]
