"""Training: the loop, what it is given of the old model, and the folder a run leaves behind."""

from nobackfill.train.loop import train

__all__ = ["train"]
