"""Run by test_distributed.py under torchrun: one process is slow to open the data."""

import sys
import time
from pathlib import Path

import torch

from nobackfill.core import distributed
from nobackfill.core.config import Choice, Recipe, TrainConfig
from nobackfill.training.decoding import Decoding
from nobackfill.training.pipeline import train_run

RECIPE = Recipe(
    data=Choice(
        "glyphs", {"train_classes": 10, "test_classes": 5, "images_per_class": 6, "side": 16}
    ),
    model=Choice("small", {"width": 4, "embedding_dim": 8}),
    train=TrainConfig(epochs=1, batch_size=15),
)


class Slow(Decoding):
    def open(self, choice, images):
        if not distributed.is_main():
            time.sleep(2)
        return super().open(choice, images)


if __name__ == "__main__":
    torch.set_num_threads(1)
    device = torch.device(distributed.start("cpu"))
    list(train_run(RECIPE, Path(sys.argv[1]), device=device, decoding=Slow()))
