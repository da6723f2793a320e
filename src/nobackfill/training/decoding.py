"""Settings for reading image files: they affect speed and memory, never a result."""

import os
from dataclasses import dataclass

from nobackfill.core.config import Choice, ImagesConfig
from nobackfill.core.device import usable_cores
from nobackfill.data.collection import Collection
from nobackfill.data.registry import make_collection


@dataclass(frozen=True)
class Decoding:
    """How image files are read.

    Attributes:
        workers: Number of processes that decode images.
        keep: Whether decoded images stay in memory.
    """

    workers: int = 0
    keep: bool = False

    def open(self, choice: Choice, images: ImagesConfig) -> Collection:
        """Opens a collection."""
        return make_collection(choice, images, workers=self.workers, keep=self.keep)


DEFAULT_DECODING = Decoding()


def choose_decoding(workers: int | None, *, keep: bool = False) -> Decoding:
    """Uses `workers` processes; None divides the cores among the training processes, up to 16."""
    if workers is None:
        workers = min(16, usable_cores() // int(os.environ.get("LOCAL_WORLD_SIZE", "1")))
    return Decoding(workers, keep)
