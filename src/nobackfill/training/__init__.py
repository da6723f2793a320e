"""Training: the loop, what it is given of the old model, and the folder a run leaves behind."""

from nobackfill.training.loop import train

__all__ = ["train"]
